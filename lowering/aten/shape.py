"""ATen ops that make, move, cut and join elements."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Poly, Value
from graphgen.ir.dtype import pred, s64
from graphgen.lowering.aten.call import END, AtenCall, AtenResult, aten, computed_in, wrapped


@aten("view.default", "_unsafe_view.default", "unsqueeze.default")
@aten("squeeze.default", "squeeze.dim", "squeeze.dims")
def _view(c: AtenCall) -> AtenResult:
    return c.b.reshape(c.value("self"), c.shape)


@aten("clone.default", "alias.default")
def _same(c: AtenCall) -> AtenResult:
    return c.value("self")


@aten("native_dropout.default")
def _native_dropout(c: AtenCall) -> AtenResult:
    if c.flag("train") and c.number("p"):
        raise GraphgenError(
            "GG0502", "dropout is random", help="export model.eval(), which drops nothing"
        )
    return [c.value("input"), c.full(True, pred, c.shape)]


@aten("_to_copy.default")
def _to_copy(c: AtenCall) -> AtenResult:
    return c.cast(c.value("self"), c.dtype)


@aten("copy.default")
def _copy(c: AtenCall) -> AtenResult:
    return c.full(c.value("src"), c.dtype, c.shape)


@aten("fill.Scalar", "fill.Tensor")
def _fill(c: AtenCall) -> AtenResult:
    return c.full(c.operand("value"), c.dtype, c.shape)


@aten("permute.default")
def _permute(c: AtenCall) -> AtenResult:
    x = c.value("self")
    order = [wrapped(dim, x.type.rank) for dim in c.items("dims") if isinstance(dim, int)]
    return x if order == sorted(order) else c.b.transpose(x, order)


@aten("transpose.int", "t.default")
def _transpose(c: AtenCall) -> AtenResult:
    x = c.value("self")
    order = list(range(x.type.rank))
    if len(order) < 2:
        return x
    first, second = c.dim("dim0", len(order), 0), c.dim("dim1", len(order), 1)
    order[first], order[second] = order[second], order[first]
    return c.b.transpose(x, order)


@aten("expand.default")
def _expand(c: AtenCall) -> AtenResult:
    return c.spread(c.value("self"), c.shape)


def cut(c: AtenCall, x: Value, dim: int, start: Dim, end: Dim, step: int = 1) -> Value:
    """Elements ``start, start + step, ... < end`` of one dimension."""
    if (start, end, step) == (0, x.shape[dim], 1):
        return x
    if step == 1:
        return c.b.slice_dim(x, dim, start, end)
    starts: list[Dim] = [0] * x.type.rank
    limits, strides = list(x.shape), [1] * x.type.rank
    starts[dim], limits[dim], strides[dim] = start, end, step
    attrs = {"start_indices": tuple(starts), "limit_indices": tuple(limits)}
    return c.b.op("slice", x, **attrs, strides=tuple(strides))


def _bounds(c: AtenCall, size: Dim) -> tuple[Dim, Dim]:
    """Start and end of a slice as torch clips them."""
    start, end = c.size("start", 0), c.size("end", END)
    return _clipped(start, size), _clipped(end, size)


def _clipped(at: Dim, size: Dim) -> Dim:
    if isinstance(at, int) and at == END:
        return size
    if isinstance(at, int) and isinstance(size, int):
        return min(max(at + size if at < 0 else at, 0), size)
    if isinstance(at, int) and at < 0:
        return size + at
    return at


@aten("slice.Tensor")
def _slice(c: AtenCall) -> AtenResult:
    x = c.value("self")
    dim = c.dim("dim", x.type.rank)
    start, end = _bounds(c, x.shape[dim])
    if isinstance(start, int) and isinstance(end, int):
        end = max(start, end)
    return cut(c, x, dim, start, end, c.integer("step", 1))


@aten("slice_scatter.default")
def _slice_scatter(c: AtenCall) -> AtenResult:
    """The elements outside of the slice, with ``src`` between them."""
    x, src = c.value("self"), c.value("src")
    dim = c.dim("dim", x.type.rank)
    start, end = _bounds(c, x.shape[dim])
    if c.integer("step", 1) != 1:
        raise GraphgenError("GG0502", "slice_scatter with a step is not read")
    return _between(c, x, c.cast(src, x.dtype), dim, start, end)


@aten("select_scatter.default")
def _select_scatter(c: AtenCall) -> AtenResult:
    x, src = c.value("self"), c.value("src")
    dim = c.dim("dim", x.type.rank)
    at = _clipped(c.size("index", 0), x.shape[dim])
    shape = [1 if i == dim else size for i, size in enumerate(x.shape)]
    return _between(c, x, c.b.reshape(c.cast(src, x.dtype), shape), dim, at, at + 1)


def _between(c: AtenCall, x: Value, part: Value, dim: int, start: Dim, end: Dim) -> Value:
    parts = [part]
    if start != 0:
        parts.insert(0, cut(c, x, dim, 0, start))
    if end != x.shape[dim]:
        parts.append(cut(c, x, dim, end, x.shape[dim]))
    return parts[0] if len(parts) == 1 else c.b.concatenate(parts, dim)


@aten("select.int")
def _select(c: AtenCall) -> AtenResult:
    x = c.value("self")
    dim = c.dim("dim", x.type.rank)
    at = c.size("index", 0)
    size = x.shape[dim]
    if isinstance(at, int) and at < 0:
        at = size + at
    return c.b.reshape(cut(c, x, dim, at, at + 1), c.shape)


@aten("cat.default")
def _cat(c: AtenCall) -> AtenResult:
    # An empty vector beside tensors of more dimensions is left out, as torch does.
    rank = c.type.rank
    parts = [c.cast(value, c.dtype) for value in c.values("tensors") if value.type.rank == rank]
    return parts[0] if len(parts) == 1 else c.b.concatenate(parts, c.dim("dim", rank))


@aten("stack.default")
def _stack(c: AtenCall) -> AtenResult:
    dim = c.dim("dim", c.type.rank)
    shape = [1 if i == dim else size for i, size in enumerate(c.shape)]
    parts = [c.b.reshape(c.cast(value, c.dtype), shape) for value in c.values("tensors")]
    return c.b.concatenate(parts, dim)


@aten("split_with_sizes.default", "split.Tensor")
def _split(c: AtenCall) -> AtenResult:
    x = c.value("self")
    dim, start = c.dim("dim", x.type.rank), 0
    parts: list[Value] = []
    for type_ in c.types:
        end = start + type_.shape[dim]
        parts.append(cut(c, x, dim, start, end))
        start = end
    return parts


@aten("unbind.int")
def _unbind(c: AtenCall) -> AtenResult:
    x = c.value("self")
    dim = c.dim("dim", x.type.rank)
    parts = [cut(c, x, dim, i, i + 1) for i in range(len(c.types))]
    return [c.b.reshape(part, t.shape) for part, t in zip(parts, c.types, strict=True)]


@aten("flip.default")
def _flip(c: AtenCall) -> AtenResult:
    x = c.value("self")
    dims = c.dims("dims", x.type.rank) if c.items("dims") else []
    return c.b.reverse(x, dims) if dims else x


@aten("roll.default")
def _roll(c: AtenCall) -> AtenResult:
    x = c.value("self")
    dims = [wrapped(dim, x.type.rank) for dim in c.items("dims") if isinstance(dim, int)]
    shifts = [shift for shift in c.items("shifts") if isinstance(shift, int)]
    flat = x if dims else c.b.reshape(x, (x.type.size,))
    for dim, shift in zip(dims or [0], shifts, strict=True):
        size = flat.shape[dim]
        first = shift % size if isinstance(size, int) and size else shift
        if first:
            back = [cut(c, flat, dim, size - first, size), cut(c, flat, dim, 0, size - first)]
            flat = c.b.concatenate(back, dim)
    return c.b.reshape(flat, x.shape)


@aten("repeat.default")
def _repeat(c: AtenCall) -> AtenResult:
    """Each dimension as two, the first of which only repeats."""
    x = c.value("self")
    counts = [item for item in c.items("repeats") if isinstance(item, int | Poly)]
    sizes: list[Dim] = [*([1] * (len(counts) - x.type.rank)), *x.shape]
    shape = [size for pair in zip(counts, sizes, strict=True) for size in pair]
    places = range(2 * (len(counts) - x.type.rank) + 1, len(shape), 2)
    return c.b.reshape(c.b.broadcast_in_dim(x, shape, places), c.shape)


@aten("repeat_interleave.self_int")
def _repeat_interleave(c: AtenCall) -> AtenResult:
    x, count = c.value("self"), c.integer("repeats")
    if c.given.get("dim") is None:
        x = c.b.reshape(x, (x.type.size,))
    dim = c.dim("dim", x.type.rank)
    shape = [*x.shape[: dim + 1], count, *x.shape[dim + 1 :]]
    places = [i for i in range(len(shape)) if i != dim + 1]
    return c.b.reshape(c.b.broadcast_in_dim(x, shape, places), c.shape)


@aten("constant_pad_nd.default")
def _pad(c: AtenCall) -> AtenResult:
    """Pairs of paddings from the last dimension; a negative one cuts off."""
    x = c.value("self")
    pads = [item for item in c.items("pad") if isinstance(item, int)]
    low, high = [0] * x.type.rank, [0] * x.type.rank
    for index in range(len(pads) // 2):
        dim = x.type.rank - 1 - index
        low[dim], high[dim] = pads[2 * index], pads[2 * index + 1]
        if min(low[dim], high[dim]) < 0:
            end = x.shape[dim] - max(0, -high[dim])
            x = cut(c, x, dim, max(0, -low[dim]), end)
    number = c.full(c.number("value"), x.dtype)
    grown = [max(pad, 0) for pad in low], [max(pad, 0) for pad in high]
    return c.b.pad(x, number, *grown) if any(map(any, grown)) else x


@aten("tril.default", "triu.default")
def _triangle(c: AtenCall) -> AtenResult:
    x, diagonal = c.value("self"), c.integer("diagonal", 0)
    rank = x.type.rank
    rows, columns = (c.b.iota(s64, x.shape[-2:], dim) for dim in (0, 1))
    reach = c.b.add(rows, diagonal)
    kept = c.b.compare(columns, reach, "LE" if c.op.startswith("tril") else "GE")
    spread = c.b.broadcast_in_dim(kept, x.shape, [rank - 2, rank - 1])
    return c.b.select(spread, x, c.full(0, x.dtype, x.shape))


@aten("arange.default", "arange.start", "arange.start_step")
def _arange(c: AtenCall) -> AtenResult:
    start, step = c.operand("start") if "start" in c.given else 0, c.number("step", 1)
    counts = c.b.iota(c.dtype if c.dtype.is_float else s64, c.shape, 0)
    dtype = computed_in(counts.dtype, step)
    scaled = c.b.convert(counts, dtype)
    if step != 1:
        scaled = c.b.multiply(scaled, c.full(step, dtype, c.shape))
    if not (isinstance(start, int | float) and start == 0):
        scaled = c.b.add(scaled, c.full(start, dtype, c.shape))
    return c.b.convert(scaled, c.dtype)


@aten("full.default", "full_like.default", "new_full.default")
def _full(c: AtenCall) -> AtenResult:
    return c.full(c.operand("fill_value"), c.dtype, c.shape)


@aten("scalar_tensor.default")
def _scalar_tensor(c: AtenCall) -> AtenResult:
    return c.full(c.operand("s"), c.dtype)


@aten("zeros.default", "zeros_like.default", "new_zeros.default")
@aten("empty.memory_format", "empty_like.default", "new_empty.default")
def _zeros(c: AtenCall) -> AtenResult:
    return c.full(0, c.dtype, c.shape)


@aten("ones.default", "ones_like.default", "new_ones.default")
def _ones(c: AtenCall) -> AtenResult:
    return c.full(1, c.dtype, c.shape)


@aten("eye.default", "eye.m")
def _eye(c: AtenCall) -> AtenResult:
    rows, columns = (c.b.iota(s64, c.shape, dim) for dim in (0, 1))
    return c.cast(c.b.compare(rows, columns, "EQ"), c.dtype)


def ones_like(values: Sequence[Value]) -> list[Dim]:
    """The shape all of these are repeated to."""
    rank = max(value.type.rank for value in values)
    shape: list[Dim] = [1] * rank
    for value in values:
        for index, size in enumerate(value.shape, rank - value.type.rank):
            if shape[index] == 1:
                shape[index] = size
    return shape
