"""NumPy rules of the ops that apply a function of scalars: it is given arrays instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphgen.eval.arithmetic import Array
from graphgen.eval.indexing import indexed_shape, scatter_places
from graphgen.eval.observer import Columns
from graphgen.eval.window import spread, windows_view
from graphgen.ir import Op
from graphgen.ops.reduce_window import reduced_windows

Order = npt.NDArray[np.int64]
# Elements of each operand and rank, first those that may come first; -> per rank, whether they do.
Before = Callable[[Columns, Columns], Sequence[Array]]


def sorted_by(given: Columns, axis: int, before: Before) -> list[list[Array]]:
    """The operands in the order of a comparator, of equal elements the first first.

    Runs of 1, 2, 4, ... elements are merged: each element of a left run is placed by a binary
    search in its right run, for all runs of all lines in one call of the comparator.

    Args:
        given: per operand, one array a rank.
        axis: of the lines.
        before: the comparator.
    """
    moved = [[np.moveaxis(x, axis, -1) for x in column] for column in given]
    shape = moved[0][0].shape
    size = shape[-1]
    if 0 in shape:
        return [list(column) for column in given]
    lines = [[x.reshape(-1, size) for x in column] for column in moved]
    start = np.broadcast_to(np.arange(size, dtype=np.int64), lines[0][0].shape)
    orders: list[Order] = [start.copy() for _ in lines[0]]
    width = 1
    while width < size:
        orders = _merged(lines, orders, width, before)
        width *= 2
    return [
        [
            np.moveaxis(np.take_along_axis(x, order, -1).reshape(shape), -1, axis)
            for x, order in zip(column, orders, strict=True)
        ]
        for column in lines
    ]


def _merged(lines: Columns, orders: Sequence[Order], width: int, before: Before) -> list[Order]:
    """The orders after runs of ``width`` elements are merged two by two."""
    size = lines[0][0].shape[-1]
    places: Order = np.arange(size, dtype=np.int64)
    is_left = places // width % 2 == 0
    left: Order = places[is_left]
    right: Order = places[~is_left]
    if not len(right):
        return list(orders)
    first: Order = left - left % width
    counts = _searched(lines, orders, left, first + width, before)
    out: list[Order] = []
    for order, count in zip(orders, counts, strict=True):
        # A comparator that contradicts itself may not make a run shorter than the one before.
        target: Order = np.maximum.accumulate(first + count, -1) + left - first
        made = np.empty_like(order)
        free = np.ones(order.shape, bool)
        np.put_along_axis(made, target, order[:, left], -1)
        np.put_along_axis(free, target, values=False, axis=-1)
        made[free] = order[:, right].reshape(-1)
        out.append(made)
    return out


def _searched(
    lines: Columns, orders: Sequence[Order], left: Order, other: Order, before: Before
) -> list[Order]:
    """For each element at ``left``, how many of its right run come before it.

    Args:
        lines: the operands.
        orders: per rank, which element is where.
        left: places of elements.
        other: where the right run of each begins.
        before: the comparator.
    """
    size = lines[0][0].shape[-1]
    width = int(other[0])
    most = np.clip(size - other, 0, width)
    low = [np.zeros((len(order), len(left)), np.int64) for order in orders]
    high = [np.broadcast_to(most, found.shape).copy() for found in low]
    mine = [[_at(x, o[:, left]) for x, o in zip(c, orders, strict=True)] for c in lines]
    for _ in range(width.bit_length()):
        middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
        # Where a search has ended, any element will do.
        spots = [
            np.take_along_axis(order, np.minimum(other + m, size - 1), -1)
            for order, m in zip(orders, middle, strict=True)
        ]
        theirs = [[_at(x, spot) for x, spot in zip(c, spots, strict=True)] for c in lines]
        for rank, found in enumerate(before(theirs, mine)):
            comes = np.broadcast_to(found, low[rank].shape)
            going = low[rank] < high[rank]
            low[rank] = np.where(going & comes, middle[rank] + 1, low[rank])
            high[rank] = np.where(going & ~comes, middle[rank], high[rank])
    return low


def _at(x: Array, places: Order) -> Array:
    return np.take_along_axis(x, places, -1)


class Apply(Protocol):
    """Runs the function."""

    def __call__(
        self, given: Columns, shape: Sequence[int], rank: int | None = None
    ) -> list[list[Array]]:
        """The results for arrays of one shape; per value one array a rank, or that of ``rank``."""
        ...


def run_applied(op: Op, given: Columns, apply: Apply) -> list[list[Array]]:
    """The results of an op that applies a function of scalars.

    Args:
        op: one of :data:`graphgen.ops.control.SCALAR`.
        given: its operands.
        apply: runs the function on arrays of any one shape.
    """
    return _RULES[op.name](op, given, apply)


def _map(op: Op, given: Columns, apply: Apply) -> list[list[Array]]:
    return apply(given, given[0][0].shape)


def _reduce_by(op: Op, given: Columns, apply: Apply) -> list[list[Array]]:
    """Combine neighbors, then those results, and so on."""
    dims, count = op.attrs.integers("dimensions"), len(given) // 2
    shape = given[0][0].shape
    kept = [size for dim, size in enumerate(shape) if dim not in dims]
    combined = prod(shape[dim] for dim in dims)
    state = [
        [np.moveaxis(x, dims, range(len(dims))).reshape(combined, *kept) for x in column]
        for column in given[:count]
    ]
    while (size := len(state[0][0])) > 1:
        half = size // 2
        pairs = [[x[side : 2 * half : 2] for x in c] for side in (0, 1) for c in state]
        made = apply(pairs, (half, *kept))
        rest = [[x[2 * half :] for x in column] for column in state]
        state = [
            [np.concatenate([a, b]) for a, b in zip(one, other, strict=True)]
            for one, other in zip(made, rest, strict=True)
        ]
    start = [[np.broadcast_to(x, tuple(kept)) for x in column] for column in given[count:]]
    if not len(state[0][0]):
        return start
    return apply([*start, *[[x[0] for x in column] for column in state]], kept)


def _reduce_window_by(op: Op, given: Columns, apply: Apply) -> list[list[Array]]:
    """One element of all windows after the other."""
    windows, count = reduced_windows(op.attrs), len(given) // 2
    places = op.results[0].type.dims
    shape = given[0][0].shape
    there = windows_view(spread(np.ones(shape, bool), windows, fill=False), windows, places)
    views = [
        [windows_view(spread(x, windows, x.dtype.type(0)), windows, places) for x in column]
        for column in given[:count]
    ]
    state = [[np.broadcast_to(x, places) for x in column] for column in given[count:]]
    for tap in np.ndindex(*op.attrs.integers("window_dimensions")):
        inside = there[(..., *tap)]
        made = apply([*state, *[[x[(..., *tap)] for x in c] for c in views]], places)
        state = [
            [np.where(inside, new, old) for new, old in zip(news, olds, strict=True)]
            for news, olds in zip(made, state, strict=True)
        ]
    return [list(column) for column in state]


def _sort_by(op: Op, given: Columns, apply: Apply) -> list[list[Array]]:
    def before(first: Columns, second: Columns) -> list[Array]:
        pairs = [side for pair in zip(first, second, strict=True) for side in pair]
        return apply(pairs, first[0][0].shape)[0]

    return sorted_by(given, op.attrs.integer("dimension"), before)


def _scatter_by(op: Op, given: Columns, apply: Apply) -> list[list[Array]]:
    """The first update of every element, then the second ones, and so on."""
    count = len(given) // 2
    out = [[x.reshape(-1).copy() for x in column] for column in given[:count]]
    rounds: list[list[tuple[Array, Array]]] = []
    flat: list[list[Array]] = [[] for _ in range(count)]
    for rank, indices in enumerate(given[count]):
        operand = given[0][rank]
        updates = [column[rank] for column in given[count + 1 :]]
        found = [scatter_places(op.attrs, operand, indices, update) for update in updates]
        for column, (_, moved) in zip(flat, found, strict=True):
            column.append(moved.reshape(-1))
        places, moved = found[0]
        targets = np.zeros(moved.shape, np.int64)
        for size, spots in zip(indexed_shape(operand.shape), places, strict=True):
            targets = targets * size + spots
        rounds.append(_in_rounds(targets.reshape(-1)))
    for number in range(max(map(len, rounds))):
        _scatter_round(out, flat, rounds, number, apply)
    shape = given[0][0].shape
    return [[x.reshape(shape) for x in column] for column in out]


def _in_rounds(targets: Array) -> list[tuple[Array, Array]]:
    """Targets and the numbers of their updates, each target once a round, in order."""
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    first = np.searchsorted(ordered, ordered)
    turn = np.arange(len(ordered)) - first
    return [
        (ordered[turn == number], order[turn == number])
        for number in range(int(turn.max(initial=-1)) + 1)
    ]


def _scatter_round(
    out: list[list[Array]],
    flat: Columns,
    rounds: Sequence[Sequence[tuple[Array, Array]]],
    number: int,
    apply: Apply,
) -> None:
    """Combine one update of each element; ranks have different ones, so one after the other."""
    for rank, turns in enumerate(rounds):
        if number >= len(turns):
            continue
        targets, updates = turns[number]
        shape = targets.shape
        mine = [[column[rank][targets]] for column in out]
        theirs = [[column[rank][updates]] for column in flat]
        for column, (made,) in zip(out, apply([*mine, *theirs], shape, rank), strict=True):
            column[rank][targets] = made


_RULES: dict[str, Callable[[Op, Columns, Apply], list[list[Array]]]] = {
    "map": _map,
    "reduce_by": _reduce_by,
    "reduce_window_by": _reduce_window_by,
    "scatter_by": _scatter_by,
    "sort_by": _sort_by,
}
