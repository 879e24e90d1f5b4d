"""Value traces: every value of one run of a program, and their comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.eval import Arithmetic, Array, evaluate_ranks
from graphgen.ir import Function, Module, Op, Value
from graphgen.passes.equiv.deviation import difference

Parts = Sequence[Array]


@dataclass(frozen=True, slots=True)
class ValueTrace:
    """The values of a run.

    Attributes:
        function: the program.
        parts: per value one array a rank, in program order.
    """

    function: Function
    parts: Mapping[Value, Parts]


def trace(
    module: Module,
    function: Function,
    given: Sequence[Mapping[str, Array]],
    arithmetic: Arithmetic,
) -> ValueTrace:
    """Run a program in NumPy and keep every value.

    Args:
        module: has the bodies of loops and branches.
        function: static shapes.
        given: per rank the arguments.
        arithmetic: in which floats.
    """
    parts: dict[Value, Parts] = {}
    for value in function.args:
        arrays = [np.asarray(one[value.name or ""]) for one in given]
        wide = arithmetic.dtype(value.dtype)
        # Integers may carry a float, or a pair of them.
        parts[value] = [
            a if arithmetic.carries(a) or arithmetic.carries_pair(a) else a.astype(wide)
            for a in arrays
        ]

    def keep(op: Op, results: Sequence[Sequence[Array]]) -> None:
        parts.update(zip(op.results, results, strict=True))

    evaluate_ranks(function, given, arithmetic, keep, module)
    return ValueTrace(function, parts)


def wholes(parts: Parts) -> Iterator[Array]:
    """Candidate whole tensors of a value of several ranks.

    The same on all, the parts put together along a dimension, or their sum.
    """
    first = parts[0]
    if len(parts) == 1 or all(_same(part, first) for part in parts):
        yield first
        return
    for dim in range(first.ndim):
        yield np.concatenate(list(parts), dim)
    if first.dtype.kind not in "b":
        yield np.sum(np.stack(list(parts)), 0)


def _same(a: Array, b: Array) -> bool:
    return a is b or a.tobytes() == b.tobytes()


def views(left: Parts, right: Parts) -> tuple[Array, Array] | None:
    """Two arrays to compare: rank by rank where both have as many, else as wholes.

    ``None`` where no reading gives both one shape.
    """
    if len(left) == len(right):
        if left[0].shape != right[0].shape:
            return None
        if len(left) == 1:
            return left[0], right[0]
        return np.stack(list(left)), np.stack(list(right))
    for one in wholes(left):
        for other in wholes(right):
            if one.shape == other.shape:
                return one, other
    return None


# Beyond this a number stands for "none": the lowest float, which masked scores are set to.
SENTINEL = 1e30


def close(a: Array, b: Array, tolerance: float) -> bool:
    """True if two arrays of one shape differ by at most ``tolerance`` of their largest value."""
    if a is b:
        return True
    if a.dtype.kind in "iub" and b.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    x, y = _wide(a), _wide(b)
    sizes = np.abs(x[np.abs(x) < SENTINEL])
    return bool(np.all(_gap(x, y) <= tolerance * float(sizes.max(initial=0.0))))


def _wide(array: Array) -> Array:
    """The array in f64, or in c128 if it is complex."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _gap(x: Array, y: Array) -> Array:
    """Differences; 0 where both are NaN or the same infinity, NaN where one is."""
    with np.errstate(invalid="ignore"):
        return np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))


def worst_index(a: Array, b: Array, budget: float = 0.0) -> tuple[int, ...]:
    """Index of the element because of which two arrays of one shape differ by more than a budget.

    That is the largest difference, NaN in one only counting most; where it is within the budget the
    largest one over the element's own size, or the first sign of zero. Elements that are masked in
    one of them are not compared.
    """
    flat = difference("", 0, a, b).place(budget)
    return tuple(int(i) for i in np.unravel_index(flat, a.shape)) if a.shape else ()
