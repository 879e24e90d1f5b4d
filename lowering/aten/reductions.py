"""ATen ops that combine the elements of dimensions, or put them in order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Value
from graphgen.ir.dims import product
from graphgen.ir.dtype import pred, s64
from graphgen.lowering.aten.call import AtenCall, AtenResult, aten, wide
from graphgen.lowering.aten.elementwise import ordinal


def size_of(x: Value, dims: Sequence[int]) -> Dim:
    """Count the elements that each result combines."""
    return product([x.shape[dim] for dim in dims])


def reduced(c: AtenCall, x: Value, dims: Sequence[int], kind: str) -> Value:
    """``x`` combined along ``dims``, which stay with size 1 where the call says so."""
    made = c.b.reduce(x, dims, kind) if dims else x
    return c.b.reshape(made, c.shape)


def _over(c: AtenCall, x: Value) -> list[int]:
    """The dimensions a call reduces; all where it names none."""
    return c.dims("dim", x.type.rank) if x.type.rank else []


@aten("sum.default", "sum.dim_IntList")
def _sum(c: AtenCall) -> AtenResult:
    x = c.b.convert(c.value("self"), wide(c.dtype))
    return c.b.convert(reduced(c, x, _over(c, x), "add"), c.dtype)


@aten("mean.default", "mean.dim")
def _mean(c: AtenCall) -> AtenResult:
    x = c.b.convert(c.value("self"), wide(c.dtype))
    dims = _over(c, x)
    return c.b.convert(_average(c, reduced(c, x, dims, "add"), size_of(x, dims)), c.dtype)


def _average(c: AtenCall, total: Value, count: Dim) -> Value:
    return c.b.divide(total, c.full(_as_float(count), total.dtype, total.shape))


def _as_float(count: Dim) -> Dim | float:
    return float(count) if isinstance(count, int) else count


@aten("amax.default", "amin.default", "max.default", "min.default")
def _extreme(c: AtenCall) -> AtenResult:
    x = ordinal(c, c.value("self"))
    kind = "maximum" if c.op.startswith(("amax", "max")) else "minimum"
    return c.cast(reduced(c, x, _over(c, x), kind), c.dtype)


@aten("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def _any(c: AtenCall) -> AtenResult:
    x = ordinal(c, c.cast(c.value("self"), pred))
    found = reduced(c, x, _over(c, x), "maximum" if c.op.startswith("any") else "minimum")
    # Of nothing, any is false and all is true, also where the least number stands for it.
    zero = c.b.full(0, found.type)
    return c.b.compare(found, zero, "GT" if c.op.startswith("any") else "NE")


@aten("var.correction", "std.correction", "var_mean.correction")
def _var(c: AtenCall) -> AtenResult:
    """The mean square of what is left of the mean; the count is one less by default."""
    given = c.value("self")
    x = c.b.convert(given, wide(given.dtype))
    dims = _over(c, x)
    count = size_of(x, dims)
    kept = [1 if i in dims else size for i, size in enumerate(x.shape)]
    mean = _average(c, c.b.reshape(c.b.reduce(x, dims, "add"), kept), count)
    rest = c.b.subtract(x, c.spread(mean, x.shape))
    total = reduced(c, c.b.multiply(rest, rest), dims, "add")
    if not isinstance(count, int):
        raise GraphgenError("GG0106", f"{c.op} of a size that is not known")
    divisor = max(0.0, count - c.number("correction", 1))
    made = c.b.divide(total, c.full(divisor, total.dtype, total.shape))
    made = c.b.convert(c.b.sqrt(made) if c.op.startswith("std") else made, c.dtype)
    if c.op.startswith("var_mean"):
        return [made, c.b.convert(c.b.reshape(mean, c.types[1].shape), c.types[1].dtype)]
    return made


@aten("max.dim", "min.dim")
def _max_dim(c: AtenCall) -> AtenResult:
    x = ordinal(c, c.value("self"))
    if not x.shape:
        return [c.value("self"), c.full(0, s64)]
    dim = c.dim("dim", x.type.rank)
    largest = c.op.startswith("max")
    best = c.b.reduce(x, [dim], "maximum" if largest else "minimum")
    place = (c.b.argmax if largest else c.b.argmin)(x, dim, dtype=s64)
    place = c.b.reshape(place, c.types[1].shape)
    return [c.cast(c.b.reshape(best, c.shape), c.dtype), place]


@aten("argmax.default", "argmin.default")
def _argmax(c: AtenCall) -> AtenResult:
    x = ordinal(c, c.value("self"))
    if c.given.get("dim") is None:
        x = c.b.reshape(x, (x.type.size,))
    if not x.shape:
        return c.full(0, c.dtype, c.shape)
    dim = c.dim("dim", x.type.rank)
    place = c.b.argmax if c.op.startswith("argmax") else c.b.argmin
    return c.b.reshape(place(x, dim, dtype=s64), c.shape)


@aten("cumsum.default")
def _cumsum(c: AtenCall) -> AtenResult:
    x = c.cast(c.value("self"), wide(c.dtype))
    if not x.shape:
        return c.b.convert(x, c.dtype)
    dim = c.dim("dim", x.type.rank)
    return c.b.convert(c.b.cumsum(x, dim), c.dtype)


@aten("sort.default", "sort.stable")
def _sort(c: AtenCall) -> AtenResult:
    x = c.value("self")
    if not x.shape:
        return [x, c.full(0, s64)]
    dim = c.dim("dim", x.type.rank, -1)
    places = c.b.iota(s64, x.shape, dim)
    values, order = c.b.sort([_comparable(c, x), places], dim, descending=c.flag("descending"))
    return [c.cast(values, x.dtype), order]


def _comparable(c: AtenCall, x: Value) -> Value:
    """Map floats to keys in torch's order: the zeros are equal, NaN is the largest."""
    if not x.dtype.is_float:
        return ordinal(c, x)
    nan = c.b.full(math.nan, x.type)
    return c.b.select(c.b.compare(x, x, "EQ"), c.b.add(x, 0.0), nan)


@aten("topk.default")
def _topk(c: AtenCall) -> AtenResult:
    """Select the k largest of a dimension; for the smallest, of the negated numbers."""
    x, k = c.value("self"), c.integer("k")
    if not x.shape:
        return [x, c.full(0, s64)]
    dim, last = c.dim("dim", x.type.rank, -1), x.type.rank - 1
    order = [i for i in range(x.type.rank) if i != dim] + [dim]
    given = _comparable(c, x if dim == last else c.b.transpose(x, order))
    if not c.flag("largest", True):
        return _least(c, given, order, k)
    values, places = c.b.top_k(given, k)
    return _back(c, values, c.b.convert(places, s64), order)


def _least(c: AtenCall, x: Value, order: Sequence[int], k: int) -> list[Value]:
    last = x.type.rank - 1
    values, places = c.b.sort([x, c.b.iota(s64, x.shape, last)], last)
    first, where = (c.b.slice_dim(v, last, 0, k) for v in (values, places))
    return _back(c, first, where, order)


def _back(c: AtenCall, values: Value, places: Value, order: Sequence[int]) -> list[Value]:
    back = [list(order).index(i) for i in range(len(order))]
    turned = [v if back == sorted(back) else c.b.transpose(v, back) for v in (values, places)]
    return [c.cast(turned[0], c.dtype), turned[1]]
