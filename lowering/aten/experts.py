"""ATen ops of experts: rows counted by expert, and each group of rows times its own matrix."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Value
from graphgen.ir.dtype import s64
from graphgen.lowering.aten.call import AtenCall, AtenResult, aten, wide


@aten("histc.default")
def _histc(c: AtenCall) -> AtenResult:
    """Count the elements in each of ``bins`` intervals of one width between ``min`` and ``max``."""
    low, high, bins = c.number("min"), c.number("max"), c.integer("bins", 100)
    if not low < high:
        raise GraphgenError(
            "GG0502", f"{c.op} between the least and the largest element is not read"
        )
    given = c.value("self")
    dtype = wide(given.dtype)
    x = c.b.reshape(c.b.convert(given, dtype), (given.type.size, 1))
    scaled = c.b.divide(c.b.multiply(c.b.subtract(x, low), float(bins)), high - low)
    # The last interval holds its right end.
    place = c.b.minimum(c.b.convert(c.b.floor(scaled), s64), c.full(bins - 1, s64, x.shape))
    shape = (x.shape[0], bins)
    inside = c.b.op(
        "and",
        c.b.compare(x, c.full(low, dtype, x.shape), "GE"),
        c.b.compare(x, c.full(high, dtype, x.shape), "LE"),
    )
    here = c.b.compare(c.spread(place, shape), c.b.iota(s64, shape, 1), "EQ")
    counted = c.b.op("and", here, c.spread(inside, shape))
    return c.b.reduce(c.b.convert(counted, c.dtype), [0], "add")


@aten("transformers.grouped_mm_fallback.default")
def _grouped(c: AtenCall) -> AtenResult:
    """Rows [M,K] times the matrix of [E,K,N] whose group they are in; groups end at ``offs`` [E].

    Each row is put in its group's place of [M,E,K], among zeros, and contracted over experts and
    features at once: no matrix is copied for a row.
    """
    return c.b.convert(grouped_product(c, c.value("input"), c.value("weight")), c.dtype)


@aten("_grouped_mm.default")
def _grouped_mm(c: AtenCall) -> AtenResult:
    """``_grouped_mm``, of rows and a stack of matrices (GG0502 for its other forms)."""
    x, weights = c.value("self"), c.value("mat2")
    if (x.type.rank, weights.type.rank) != (2, 3) or c.maybe("bias") is not None:
        raise GraphgenError(
            "GG0502", f"{c.op} of {x.type.text} and {weights.type.text} is not read"
        )
    return c.b.convert(grouped_product(c, x, weights), c.dtype)


def grouped_product(c: AtenCall, x: Value, weights: Value) -> Value:
    """Product of each row with its group's matrix; rows after the last group become zeros."""
    rows, features = x.shape
    experts = weights.shape[0]
    ends = c.b.convert(c.value("offs"), s64)
    shape = (rows, experts)
    row = c.b.iota(s64, shape, 0)
    before = c.b.pad(c.b.slice_dim(ends, 0, 0, experts - 1), c.full(0, s64), [1], [0])
    starts, stops = (c.b.broadcast_in_dim(v, shape, [1]) for v in (before, ends))
    inside = c.b.op("and", c.b.compare(row, starts, "GE"), c.b.compare(row, stops, "LT"))
    wide_shape = (rows, experts, features)
    spread = c.b.broadcast_in_dim(x, wide_shape, [0, 2])
    chosen = c.b.broadcast_in_dim(inside, wide_shape, [0, 1])
    placed = c.b.select(chosen, spread, c.full(0, x.dtype, wide_shape))
    return c.b.dot_general(placed, weights, ([1, 2], [0, 1]), ([], []), wide(x.dtype))
