"""Rows in the order of a sort: looked up into it, and back out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphgen.ir import Dim, Op, Value
from graphgen.passes.raising.index_functions import places_of
from graphgen.pattern.see_through import literal

if TYPE_CHECKING:
    from graphgen.eval import Array


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """An axis of a computation; two of one size are two axes."""

    size: Dim


@dataclass(frozen=True, slots=True, eq=False)
class SortedAxis(Axis):
    """Axes as one, in the order of a ``sort`` of numbers that lie along them.

    Attributes:
        sort: of the numbers, with their places.
        axes: the axes, outer to inner.
    """

    sort: Op
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """A value, and the axes of each of its dimensions, outer to inner; none for a size of 1."""

    value: Value
    dims: tuple[tuple[Axis, ...], ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, outer to inner."""
        return tuple(axis for dim in self.dims for axis in dim)


def under_order(found: Followed) -> Followed | None:
    """The operand of a lookup of rows that only changes their order; ``None`` for other values.

    Rows that are looked up by the inverse of a sort's order have a :class:`SortedAxis` before it;
    along one of these, rows that are looked up by the order have the axes that were sorted, those
    looked up by the order divided by the size of the last one the axes before it.
    """
    sort, result = found.value.op, found.value
    if sort is not None and sort.name == "sort":
        axis = _sorted_by(found, sort)
        own = axis is not None and result is sort.results[0]
        return Followed(sort.operands[0], (axis.axes,)) if axis and own else None
    looked = looked_rows(found.value)
    if looked is None or not found.dims[0]:
        return None
    table, indices = looked
    known = places_of(indices)
    if known is None:
        return None
    order, places = known
    (first, *_), rest = found.dims[0], found.dims[1:]
    if isinstance(first, SortedAxis) and order is first.sort.results[1]:
        axes = _reached(first, places)
        return None if axes is None else Followed(table, (axes, *rest))
    inverted = _inverse(order) if _counts(places) else None
    if inverted is None or table.shape[0] != found.value.shape[0]:
        return None
    sorted_axis = SortedAxis(table.shape[0], inverted, found.dims[0])
    return Followed(table, ((sorted_axis,), *rest))


def added_rows(op: Op, root: Followed) -> tuple[Followed, Axis] | None:
    """Rows in the order of a sort that a ``scatter`` adds to zeros, at their tokens.

    Returns:
        The rows, and the axis of a token's choices; ``None`` for another op.
    """
    if op.name != "scatter" or op.attrs.text("kind") != "add" or literal(op.operands[0]) != 0:
        return None
    into, indices, updates = op.operands
    attrs = op.attrs
    rows = attrs.integers("inserted_window_dims") == (0,) and into.type.rank == 2
    rows = rows and attrs.integers("scatter_dims_to_operand_dims") == (0,)
    if not rows or attrs.integers("update_window_dims") != (1,):
        return None
    known = places_of(indices)
    tokens, count = into.shape[0], updates.shape[0]
    if known is None or not isinstance(tokens, int) or not isinstance(count, int):
        return None
    order, places = known
    sort = _sort_of(order)
    if sort is None or not tokens or count % tokens:
        return None
    chosen = Axis(count // tokens)
    axis = SortedAxis(count, sort, (*root.dims[0], chosen))
    if _reached(axis, places) != root.dims[0]:
        return None
    return Followed(updates, ((axis,), root.dims[1])), chosen


def looked_rows(value: Value) -> tuple[Value, Value] | None:
    """Table and indices [M] or [M,1] of a lookup of whole rows; ``None`` for other values."""
    op = value.op
    if op is None or op.name not in ("gather", "embedding"):
        return None
    table, indices = op.operands
    if op.name == "embedding":
        return (table, indices) if indices.type.rank == 1 else None
    rank = table.type.rank
    whole = takes_entries(op) and op.attrs.integers("offset_dims") == tuple(range(1, rank))
    one = indices.type.rank == 1 or indices.shape[1:] == (1,)
    return (table, indices) if whole and one and value.type.rank == rank else None


def takes_entries(gather: Op) -> bool:
    """True for a ``gather`` of whole entries of a stack, by their numbers."""
    attrs, table = gather.attrs, gather.operands[0]
    return (
        attrs.dims("slice_sizes") == (1, *table.shape[1:])
        and attrs.integers("collapsed_slice_dims") == (0,)
        and attrs.integers("start_index_map") == (0,)
    )


def _sorted_by(found: Followed, sort: Op) -> SortedAxis | None:
    (dim,) = found.dims if len(found.dims) == 1 else ((),)
    (axis,) = dim if len(dim) == 1 else (None,)
    return axis if isinstance(axis, SortedAxis) and axis.sort is sort else None


def _reached(axis: SortedAxis, places: Array) -> tuple[Axis, ...] | None:
    """The axes of what is looked up at these places for 0, 1, ... of the order."""
    import numpy as np

    if _counts(places):
        return axis.axes
    last = axis.axes[-1].size
    if isinstance(last, int) and np.array_equal(places, np.arange(len(places)) // last):
        return axis.axes[:-1]
    return None


def _counts(places: Array) -> bool:
    import numpy as np

    return np.array_equal(places, np.arange(len(places)))


def _sort_of(order: Value) -> Op | None:
    """The ``sort`` of a vector whose places this is."""
    op = order.producer("sort")
    if op is None or len(op.operands) != 2 or order is not op.results[1]:
        return None
    counted = op.operands[1].producer("iota")
    upwards = order.type.rank == 1 and op.attrs["descending"] is not True
    return op if counted is not None and upwards else None


def _inverse(value: Value) -> Op | None:
    """The ``sort`` whose order a vector is the inverse of: sorted again, or written at it."""
    again = _sort_of(value)
    if again is not None:
        known = places_of(again.operands[0])
        return _sort_of(known[0]) if known is not None and _counts(known[1]) else None
    op = value.producer("scatter")
    if op is None or op.attrs.text("kind") != "assign" or value.type.rank != 1:
        return None
    _, indices, updates = op.operands
    if updates.producer("iota") is None or op.attrs.integers("update_window_dims"):
        return None
    known = places_of(indices)
    if known is None or updates.shape != value.shape or not _counts(known[1]):
        return None
    return _sort_of(known[0])
