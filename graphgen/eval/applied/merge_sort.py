"""Sorting by a comparator: a merge sort of all lines at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from graphgen.eval.arithmetic import Array
from graphgen.eval.observer import Columns

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
