"""Rows of the table: the models of transformers, then the programs of JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from graphgen.eval import Array
from tests.import_table.cells import Source

TORCH = "transformers"
JAX = "JAX"


def labels() -> dict[str, list[str]]:
    """The names of the rows of each part of the table."""
    from tests.import_table.jax_programs import PROGRAMS
    from tests.import_table.torch_models import ARCHITECTURES

    return {TORCH: list(ARCHITECTURES), JAX: list(PROGRAMS)}


def source_of(part: str, label: str) -> Source:
    """The model of a row."""
    return _torch(label) if part == TORCH else _jax(label)


def _torch(label: str) -> Source:
    import torch
    from torch.utils import _pytree as trees

    from tests.import_table.torch_models import ARCHITECTURES

    found = ARCHITECTURES[label]

    def inputs() -> Mapping[str, Array]:
        model, args, named = found.make()
        # By position, they are called as forward calls them.
        places = signature(model.forward).parameters
        given = {**dict(zip(places, args, strict=False)), **named}
        return {name: value.numpy() for name, value in given.items()}

    def results() -> Sequence[Array]:
        model, args, named = found.make()
        with torch.no_grad():
            leaves = trees.tree_leaves(model(*args, **named))
        return [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]

    place = f"tests.import_table.torch_models:{found.make.__name__}"
    return Source(place, found.composites, inputs, results)


def _jax(label: str) -> Source:
    import jax

    from tests.import_table.jax_programs import PROGRAMS

    make = PROGRAMS[label]
    program = make()

    def inputs() -> Mapping[str, Array]:
        tree: Any = {"params": program.params, **program.arguments}
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        named = {jax.tree_util.keystr(p, simple=True, separator="."): v for p, v in leaves}
        return {name: np.asarray(value) for name, value in named.items()}

    def results() -> Sequence[Array]:
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(program.result())]

    place = f"tests.import_table.jax_programs:{make.__name__}"
    options = ["--weight", "params.*", *program.options]
    return Source(place, program.composites, inputs, results, options)
