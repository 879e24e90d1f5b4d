"""A stand-in for a compiler: NumPy with one planted fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphgen.eval import Array, Columns
from graphgen.exec import NumpyBackend
from graphgen.ir import Function, Op

# (op, operands, result) -> the wrong result; None where the fault is not met.
Fault = Callable[[Op, Sequence[Array], Array], Array | None]


class Planted:
    """Replaces the result of every op that meets the fault."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def enter(self, function: Function, ranks: Sequence[int]) -> None: ...

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        if len(results) != 1:
            return results
        columns: list[Array] = []
        for place, result in enumerate(results[0]):
            wrong = self._fault(op, [column[place] for column in given], result)
            columns.append(result if wrong is None else np.asarray(wrong, result.dtype))
        return [columns]

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None: ...

    def loop(self, op: Op, turns: Sequence[int]) -> None: ...


def stand_in(fault: Fault) -> NumpyBackend:
    return NumpyBackend(observer=Planted(fault))


def _floor(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    return np.trunc(x[0]) if op.name == "floor" else None


def _select(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    swaps = op.name == "select" and op.operands[0].producer("compare") is not None
    return np.where(x[0], x[2], x[1]) if swaps else None


def _slice(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    if op.name != "dynamic_slice" or op.operands[0].producer("dynamic_slice") is None:
        return None
    return np.flip(y) if int(x[1]) > 2 else None


def _compare(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    return x[0] <= x[1] if op.name == "compare" and op.attrs.text("direction") == "LT" else None


def _reduce(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    if op.name != "reduce" or op.attrs.integers("dimensions") != (1,):
        return None
    return x[0][:, :-1].sum(1) if op.attrs.text("kind") == "add" else None


def _convert(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    whole = op.name == "convert" and op.result.dtype.is_integer and x[0].dtype.kind == "f"
    return np.rint(x[0]) if whole else None


def _square(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    square = op.name == "multiply" and op.operands[0] is op.operands[1] and y.dtype.kind == "i"
    return np.clip(x[0].astype(np.int64) ** 2, 0, np.iinfo(y.dtype).max) if square else None


def _transpose(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    seen = op.name == "transpose" and op.operands[0].producer("reshape") is not None
    return np.flip(y, 0) if seen else None


def _dot(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    return x[0][:, :-1] @ x[1][:-1] if op.name == "dot_general" and x[0].shape[1] > 1 else None


def _concatenate(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    return np.concatenate(x[::-1], 0) if op.name == "concatenate" else None


def _negate(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    again = op.name == "negate" and op.operands[0].producer("tanh") is not None
    return x[0] if again else None


def _maximum(op: Op, x: Sequence[Array], y: Array) -> Array | None:
    return np.where(np.abs(x[0]) > np.abs(x[1]), x[0], x[1]) if op.name == "maximum" else None


FAULTS: dict[str, Fault] = {
    "floor rounds to zero": _floor,
    "select after compare is swapped": _select,
    "a slice of a slice is reversed": _slice,
    "less is less or equal": _compare,
    "a sum leaves out the last element": _reduce,
    "a conversion rounds to the nearest": _convert,
    "a square saturates": _square,
    "a transposed reshape is reversed": _transpose,
    "a product leaves out the last pair": _dot,
    "parts are joined the other way round": _concatenate,
    "the sign of a hyperbolic tangent is lost": _negate,
    "the larger one is that of larger size": _maximum,
}
