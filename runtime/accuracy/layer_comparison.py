"""Layer comparison: the first layer whose output differs more than the element type explains.

Both sides run the same tokens and give the hidden states between their layers. The error of a
layer is the root mean square over tokens of |actual - expected| / |expected|, Euclidean norms.
Rounding adds up like a random walk, so that after i layers ``a * sqrt(i + 1)`` is explained by it,
with a number ``a`` for each element type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.json_value import Json, json_number
from graphgen.runtime.accuracy.step_model import HiddenStates, LayerModel

EMBEDDING: Final = "embedding"
# Twice or more the largest error of one layer of SmolLM2 and of random minis, whose large weights
# amplify it. Products add up in f32: with narrower elements only their own rounding counts.
_OF_ONE_LAYER: Final[Mapping[str, float]] = {
    "f32": 2.0**-18,
    "f16": 2.0**-7,
    "bf16": 2.0**-4,
    "s8": 2.0**-4,
    "f8e4m3": 2.0**-3,
    "f8e5m2": 2.0**-2,
}


@dataclass(frozen=True, slots=True)
class LayerError:
    """The error of one layer's output.

    Attributes:
        layer: index of the layer, -1 for the embedding.
        relative: root mean square over tokens of the relative error.
        allowed: the largest error that rounding explains.
        worst_token: position of the token with the largest relative error.
    """

    layer: int
    relative: float
    allowed: float
    worst_token: int

    @property
    def name(self) -> str:
        """``embedding``, or ``layer 12``."""
        return EMBEDDING if self.layer < 0 else f"layer {self.layer}"

    @property
    def explained(self) -> bool:
        """True if rounding explains the error."""
        return self.relative <= self.allowed

    def to_json(self) -> dict[str, Json]:
        """The attributes and ``name``."""
        return {
            "layer": self.layer,
            "name": self.name,
            "relative_error": json_number(self.relative),
            "allowed": self.allowed,
            "explained": self.explained,
            "worst_token": self.worst_token,
        }


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """The errors of all layers.

    Attributes:
        dtype: element type whose rounding is allowed for.
        layers: the embedding first, then the layers in order.
    """

    dtype: str
    layers: list[LayerError]

    @property
    def first(self) -> LayerError | None:
        """The first layer whose error rounding does not explain."""
        return next((layer for layer in self.layers if not layer.explained), None)

    @property
    def place(self) -> str:
        """The place of the error in a sentence: a layer, or what is left without a wrong one."""
        if self.first is not None:
            return self.first.name
        return f"the head after the last layer, or the rounding of {self.dtype}"

    def to_json(self) -> dict[str, Json]:
        """``first_layer`` (``null`` if rounding explains all) and the layers."""
        return {
            "dtype": self.dtype,
            "first_layer": None if self.first is None else self.first.layer,
            "place": self.place,
            "layers": [layer.to_json() for layer in self.layers],
        }


def compare_layers(
    reference: LayerModel, tested: LayerModel, tokens: Sequence[int], dtype: str
) -> LayerComparison:
    """Run both sides over one sequence and compare the hidden states between layers.

    Args:
        reference: in f32.
        tested: the model under test.
        tokens: S token ids: a prompt and what was fed after it.
        dtype: the coarsest element type that the tested model rounds to.

    Raises:
        GraphgenError: GG0705 for different numbers of layers or sizes, or an unknown
            element type.
    """
    unit = _OF_ONE_LAYER.get(dtype)
    if unit is None:
        known = ", ".join(_OF_ONE_LAYER)
        raise GraphgenError("GG0705", f"the rounding of {dtype} is not known; known are {known}")
    wanted, got = reference.hidden_states(tokens), tested.hidden_states(tokens)
    shapes = [[state.shape for state in side] for side in (wanted, got)]
    if shapes[0] != shapes[1]:
        raise GraphgenError(
            "GG0705",
            f"the reference has {len(wanted) - 1} layers of size {wanted[0].shape[-1]}, the tested "
            f"model {len(got) - 1} of size {got[0].shape[-1]}",
            help="both sides must be the same model",
        )
    pairs = zip(wanted, got, strict=True)
    return LayerComparison(dtype, [_error(i, *pair, unit) for i, pair in enumerate(pairs)])


def _error(index: int, wanted: HiddenStates, got: HiddenStates, unit: float) -> LayerError:
    errors = np.linalg.norm(got.astype(np.float64) - wanted, axis=-1)
    norms = np.linalg.norm(wanted.astype(np.float64), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(norms > 0, errors / norms, np.where(errors > 0, np.inf, 0.0))
    relative = np.where(np.isnan(relative), np.inf, relative)
    mean = float(np.sqrt(np.mean(relative**2)))
    return LayerError(index - 1, mean, unit * math.sqrt(index + 1), int(relative.argmax()))
