"""ATen ops of neural networks: softmax, norms, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Value
from graphgen.ir.dims import Shape
from graphgen.ir.dtype import bf16, f16, f32, f64, pred, s64
from graphgen.lowering.aten.call import AtenCall, AtenResult, aten, wide
from graphgen.lowering.aten.reductions import size_of

# The distance from 1 to the next number of a type: what torch takes for an epsilon left out.
_EPSILON = {f32: 2.0**-23, f64: 2.0**-52, bf16: 2.0**-7, f16: 2.0**-10}


@aten("_softmax.default", "softmax.int", "_safe_softmax.default")
def _softmax(c: AtenCall) -> AtenResult:
    x = c.b.convert(c.value("self"), wide(c.dtype))
    if not x.shape:
        return c.full(1, c.dtype)
    made = c.b.softmax(x, c.dim("dim", x.type.rank))
    if c.op.startswith("_safe"):
        dim = c.dim("dim", x.type.rank)
        shown = c.b.compare(x, c.b.full(-math.inf, x.type), "NE")
        made = where_any(c, shown, dim, made)
    return c.b.convert(made, c.dtype)


def _below_largest(c: AtenCall, x: Value, dim: int) -> Value:
    return c.b.subtract(x, _rows(c, c.b.reduce(x, [dim], "maximum"), x, dim))


def _rows(c: AtenCall, per_row: Value, x: Value, dim: int) -> Value:
    """One number a row, in every element of the row."""
    kept = [i for i in range(x.type.rank) if i != dim]
    return c.b.broadcast_in_dim(per_row, x.shape, kept)


def where_any(c: AtenCall, shown: Value, dim: int, made: Value) -> Value:
    """Replace fully masked rows by 0."""
    kept = _rows(c, _any_shown(c, shown, dim), made, dim)
    return c.b.select(kept, made, c.b.full(0.0, made.type))


def _any_shown(c: AtenCall, shown: Value, dim: int) -> Value:
    """Test whether a row along ``dim`` has an element that is not masked."""
    some = c.b.reduce(c.b.convert(shown, f32), [dim], "maximum")
    return c.b.compare(some, c.b.full(0.0, some.type), "GT")


@aten("_log_softmax.default", "log_softmax.int")
def _log_softmax(c: AtenCall) -> AtenResult:
    x = c.b.convert(c.value("self"), wide(c.dtype))
    if not x.shape:
        return c.full(0, c.dtype)
    dim = c.dim("dim", x.type.rank)
    low = _below_largest(c, x, dim)
    total = c.b.log(c.b.reduce(c.b.exponential(low), [dim], "add"))
    return c.b.convert(c.b.subtract(low, _rows(c, total, x, dim)), c.dtype)


@aten("layer_norm.default")
def _layer_norm(c: AtenCall) -> AtenResult:
    return _normalized(c, c.number("eps", 1e-5))[0]


@aten("native_layer_norm.default")
def _native_layer_norm(c: AtenCall) -> AtenResult:
    return _normalized(c, c.number("eps", 1e-5))


def _normalized(c: AtenCall, epsilon: float) -> list[Value]:
    """The layer norm, the mean and one by the deviation of each row."""
    x, weight, bias = c.value("input"), c.maybe("weight"), c.maybe("bias")
    count = len(c.items("normalized_shape"))
    dims = list(range(x.type.rank - count, x.type.rank))
    raised = c.b.convert(x, wide(x.dtype))
    kept = [1 if i in dims else size for i, size in enumerate(x.shape)]
    number = c.full(_as_float(c, raised, dims), raised.dtype, kept)
    mean = c.b.divide(c.b.reshape(c.b.reduce(raised, dims, "add"), kept), number)
    rest = c.b.subtract(raised, c.spread(mean, x.shape))
    square = c.b.reshape(c.b.reduce(c.b.multiply(rest, rest), dims, "add"), kept)
    scale = c.b.rsqrt(c.b.add(c.b.divide(square, number), epsilon))
    aside = [c.b.convert(v, t.dtype) for v, t in zip((mean, scale), c.types[1:], strict=False)]
    one_type = weight is not None and weight.dtype is x.dtype and x.dtype is not f64
    if count == 1 and one_type and weight is not None:
        offset = bias if bias is not None else c.full(0.0, weight.dtype, weight.shape)
        return [c.b.layer_norm(x, weight, offset, epsilon), *aside]
    made = c.b.multiply(rest, c.spread(scale, x.shape))
    if weight is not None:
        made = c.b.multiply(made, c.spread(c.b.convert(weight, made.dtype), x.shape))
    if bias is not None:
        made = c.b.add(made, c.spread(c.b.convert(bias, made.dtype), x.shape))
    return [c.b.convert(made, c.dtype), *aside]


def _as_float(c: AtenCall, x: Value, dims: Sequence[int]) -> float:
    size = size_of(x, dims)
    if not isinstance(size, int):
        raise GraphgenError("GG0106", f"{c.op} of a size that is not known")
    return float(size)


@aten("rms_norm.default")
def _rms_norm(c: AtenCall) -> AtenResult:
    """``x * rsqrt(mean(x^2) + epsilon) * weight``."""
    x, weight = c.value("input"), c.maybe("weight")
    count = len(c.items("normalized_shape"))
    epsilon = c.number("eps", _EPSILON.get(wide(x.dtype), 0.0))
    composite = count == 1 and x.dtype is not f64
    if composite and (weight is None or weight.dtype is x.dtype):
        given = weight if weight is not None else c.full(1.0, x.dtype, x.shape[-1:])
        return c.b.rms_norm(x, given, epsilon)
    dims = list(range(x.type.rank - count, x.type.rank))
    raised = c.b.convert(x, wide(x.dtype))
    kept = [1 if i in dims else size for i, size in enumerate(x.shape)]
    total = c.b.reshape(c.b.reduce(c.b.multiply(raised, raised), dims, "add"), kept)
    mean = c.b.divide(total, _as_float(c, x, dims))
    made = c.b.multiply(raised, c.spread(c.b.rsqrt(c.b.add(mean, epsilon)), x.shape))
    if weight is not None:
        made = c.b.multiply(made, c.spread(c.b.convert(weight, made.dtype), x.shape))
    return c.b.convert(made, c.dtype)


@aten("scaled_dot_product_attention.default")
def _attention(c: AtenCall) -> AtenResult:
    """``softmax(q k * scale + mask) v`` of [.., S, D], [.., C, D] and [.., C, Dv]."""
    if c.number("dropout_p"):
        raise GraphgenError(
            "GG0502", "dropout is random", help="export model.eval(), which drops nothing"
        )
    q, k, v = (c.value(name) for name in ("query", "key", "value"))
    rank, dtype = q.type.rank, q.dtype
    if c.flag("enable_gqa"):
        k, v = (_for_each_query(c, x, q) for x in (k, v))
    # Leading dimensions are broadcast, such as the one head of keys of Falcon.
    outer = _joint([x.shape[:-2] for x in (q, k, v)])
    q, k, v = (c.spread(x, (*outer, *x.shape[-2:])) for x in (q, k, v))
    rank = q.type.rank
    size = q.shape[-1]
    scale = c.given.get("scale")
    if scale is None:
        assert isinstance(size, int)
        scale = 1 / math.sqrt(size) if size else 1.0
    assert isinstance(scale, float | int)
    batch = list(range(rank - 2))
    precise = wide(dtype)
    product = c.b.dot_general(q, k, ([rank - 1], [rank - 1]), (batch, batch), precise)
    scores = c.b.multiply(product, c.full(float(scale), precise, product.shape))
    shown, scores = _masked(c, scores)
    weights = c.b.softmax(scores, rank - 1)
    weights = c.b.convert(weights, dtype)
    made = c.b.dot_general(weights, v, ([rank - 1], [rank - 2]), (batch, batch))
    return made if shown is None else _where_row_reads(c, shown, made)


def _joint(shapes: Sequence[Shape]) -> list[Dim]:
    """The shape that all of ``shapes`` are broadcast to."""
    rank = max(len(shape) for shape in shapes)
    aligned = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return [next((size for size in sizes if size != 1), 1) for sizes in zip(*aligned, strict=True)]


def _masked(c: AtenCall, scores: Value) -> tuple[Value | None, Value]:
    """The scores with the mask on them; where it is one of booleans, also the mask."""
    mask = c.maybe("attn_mask")
    rank = scores.type.rank
    if c.flag("is_causal"):
        rows, slots = (c.b.iota(s64, scores.shape[-2:], dim) for dim in (0, 1))
        below = c.b.compare(slots, rows, "LE")
        spread = c.b.broadcast_in_dim(below, scores.shape, [rank - 2, rank - 1])
        return None, c.b.select(spread, scores, c.b.full(-math.inf, scores.type))
    if mask is None:
        return None, scores
    spread = c.spread(mask, scores.shape)
    if mask.dtype is not pred:
        return None, c.b.add(scores, c.b.convert(spread, scores.dtype))
    return mask, c.b.select(spread, scores, c.b.full(-math.inf, scores.type))


def _where_row_reads(c: AtenCall, mask: Value, made: Value) -> Value:
    """Replace the result of a fully masked token by 0, as torch does."""
    reads = _any_shown(c, mask, mask.type.rank - 1)
    kept = c.spread(c.b.reshape(reads, (*reads.shape, 1)), made.shape)
    return c.b.select(kept, made, c.b.full(0.0, made.type))


def _for_each_query(c: AtenCall, x: Value, q: Value) -> Value:
    """Heads [.., K, C, D] repeated for the queries that read them."""
    heads, wanted = x.shape[-3], q.shape[-3]
    assert isinstance(heads, int)
    assert isinstance(wanted, int)
    if heads == wanted:
        return x
    at = x.type.rank - 2
    shape = [*x.shape[:at], wanted // heads, *x.shape[at:]]
    spread = c.b.broadcast_in_dim(x, shape, [i for i in range(len(shape)) if i != at])
    return c.b.reshape(spread, (*x.shape[: at - 1], wanted, *x.shape[at:]))
