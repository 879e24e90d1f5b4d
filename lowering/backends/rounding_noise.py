"""An observer that moves results of float ops as another order of rounding would."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval import Array, Columns, numpy_dtype
from graphgen.ir import DType, Function, Op
from graphgen.lowering.cpu.backend import float_step
from graphgen.ops import OPS
from graphgen.ops.traits import Trait

# Their results are operands, or integers, or ones that no order of rounding changes.
_EXACT = frozenset(
    (
        *("negate", "abs", "sign", "maximum", "minimum", "clamp", "select", "compare", "floor"),
        *("ceil", "round_nearest_even", "round_nearest_afz", "sort", "top_k", "reduce_precision"),
        *("while", "conditional", "call"),
    )
)


class LastPlaceNoise:
    """Moves what a float op rounds by up to a unit in the last place; exact results stay.

    Args:
        seed: of the moves.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """Move nothing."""

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """Move the results of an op that rounds."""
        if op.name in _EXACT or OPS[op.name].has(Trait.DATA_MOVEMENT):
            return results
        return [
            [self._moved(array, value.dtype) for array in column]
            if value.dtype.is_float
            else column
            for value, column in zip(op.results, results, strict=True)
        ]

    def _moved(self, array: Array, kind: DType) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            rounds = array.astype(numpy_dtype(kind)).astype(array.dtype) != array
            step = float_step(kind)
            share = self._random.uniform(-step, step, array.shape)
            return np.asarray(np.where(rounds, array * (1 + share), array)).astype(array.dtype)

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """Move nothing."""

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """Move nothing."""
