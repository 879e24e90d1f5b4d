"""Ranges of the weights of a checkpoint, for twins with weights that have the same ranges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphgen.eval import Array
from graphgen.passes.verify.workload.value_ranges import Statistics, place_of, statistics_of
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint

# Rows of a matrix that are read, evenly spread, and the most layers that are looked at.
SAMPLED_ROWS = 512
SAMPLED_LAYERS = 8
_FLOATS = ("f64", "f32", "bf16", "f16")


def checkpoint_statistics(model: str) -> dict[str, list[Statistics]]:
    """The ranges of the weights of a checkpoint, by their names without layers.

    Args:
        model: a checkpoint folder, a ``.gguf`` file, or a name such as ``smollm2``.

    Returns:
        For ``mlp.down_proj.weight`` and the like the ranges of some layers, first to last; for a
        weight outside of layers, by its whole name, its own.

    Raises:
        GraphgenError: GG0601 and others for what cannot be read.
    """
    found = None if Path(model).exists() else locate(model)
    return statistics_by_place(open_checkpoint(found or model))


def statistics_by_place(checkpoint: Checkpoint) -> dict[str, list[Statistics]]:
    """The ranges of some rows of the float weights of some layers; see the function above."""
    names: dict[str, list[tuple[int, str]]] = {}
    for name, info in checkpoint.tensors().items():
        if info.dtype in _FLOATS and info.shape:
            place, layer = place_of(name)
            names.setdefault(place, []).append((layer, name))
    return {
        place: [statistics_of(_some_rows(checkpoint.read(name))) for name in _some(layers)]
        for place, layers in names.items()
    }


def _some(layers: Sequence[tuple[int, str]]) -> list[str]:
    """The names of the first layer, the last, and some between them."""
    ordered = [name for _, name in sorted(layers)]
    return [ordered[place] for place in _evenly(len(ordered), SAMPLED_LAYERS)]


def _some_rows(array: Array) -> Array:
    return array[_evenly(len(array), SAMPLED_ROWS)] if array.ndim >= 2 else array


def _evenly(count: int, most: int) -> list[int]:
    """At most ``most`` numbers below ``count``, both ends among them."""
    places = np.linspace(0, count - 1, min(count, most)).round().astype(int)
    return [int(place) for place in places]
