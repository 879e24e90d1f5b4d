"""Decomposition of ``top_k``: the largest elements of each row and their indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from graphgen.build import Builder
from graphgen.composites.registry import decomposition
from graphgen.ir import Attrs, Value, tensor
from graphgen.ir.dtype import s32


@decomposition
def top_k(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A stable descending sort of elements and indices, then a slice of the first ``k``."""
    (x,) = operands
    last = len(x.shape) - 1
    if attrs.integer("k") == 1:
        return _largest(b, x, last)
    ordered = b.sort([x, b.iota(s32, x.shape, last)], last, descending=True)
    return [b.slice_dim(value, last, 0, attrs.integer("k")) for value in ordered]


def _largest(b: Builder, x: Value, last: int) -> Sequence[Value]:
    """k = 1 without sorting: the first index that equals the maximum."""
    places, kept = b.iota(s32, x.shape, last), list(range(last))
    most = b.reduce(x, [last], "maximum")
    found = b.compare(x, b.broadcast_in_dim(most, x.shape, kept), "EQ")
    if x.dtype.is_float:
        found = _first_in_order(b, x, found, last)
    beyond = b.full(2**31 - 1, places.type)
    place = b.reduce(b.select(found, places, beyond), [last], "minimum")
    shape = (*x.shape[:-1], 1)
    return [b.reshape(most, shape), b.reshape(place, shape)]


def _first_in_order(b: Builder, x: Value, equal: Value, last: int) -> Value:
    """The maximum, +0 before -0, or NaN."""
    equal = b.binary("or", equal, b.compare(x, x, "NE"))
    signed = b.compare(b.binary("divide", b.full(1, x.type), x), b.full(-inf, x.type), "EQ")
    whole = b.full(0, tensor(s32, x.shape))
    one, two = b.full(1, whole.type), b.full(2, whole.type)
    order = b.select(equal, b.select(signed, one, two), whole)
    most = b.reduce(order, [last], "maximum")
    return b.compare(order, b.broadcast_in_dim(most, x.shape, list(range(last))), "EQ")
