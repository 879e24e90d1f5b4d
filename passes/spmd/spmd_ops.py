"""Per-rank lowering of an op under a sharding: the op on its part, or a special form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.composites.basics import sum_at_last
from graphgen.composites.partial_attention import share_of_part
from graphgen.ir import AttrValue, Dim, Op, Value
from graphgen.ir.dims import Shape
from graphgen.ir.sharding import Axes
from graphgen.ops.attention import attention_terms
from graphgen.ops.convolution import dims_of
from graphgen.ops.experts import expert_operands
from graphgen.passes.sharding.expert_exchange import exchanged_axes
from graphgen.passes.sharding.mesh import Mesh
from graphgen.passes.sharding.strategies import Strategy
from graphgen.passes.spmd.exchanged_experts import ExpertExchange
from graphgen.passes.spmd.ring_attention import Ring


@dataclass(frozen=True, slots=True)
class EmitContext:
    """The context in which per-rank ops are emitted.

    Attributes:
        b: appends to the per-rank program.
        mesh: the ranks.
        rank: its number, s32[1].
    """

    b: Builder
    mesh: Mesh
    rank: Value

    def place(self, axes: Axes) -> Value:
        """The coordinate of this rank along ``axes``, a scalar."""
        return self.mesh.coordinate(self.b, self.rank, axes)


def emit_part(
    context: EmitContext,
    op: Op,
    operands: Sequence[Value],
    strategy: Strategy,
    shapes: Sequence[Shape],
) -> Sequence[Value]:
    """Emit an op on the parts of one rank; returns the parts of the results.

    Args:
        context: where to emit.
        op: the op on whole values.
        operands: this rank's parts.
        strategy: the sharding of the op.
        shapes: of this rank's parts of the results.
    """
    if strategy.special:
        return SPECIAL_FORMS[op.name](context, op, operands, strategy)
    return context.b.emit(op.name, operands, part_attrs(op, operands, shapes)).results


def part_attrs(op: Op, operands: Sequence[Value], shapes: Sequence[Shape]) -> dict[str, AttrValue]:
    """The attributes of the op on a part: sizes become those of the part."""
    attrs = dict(op.attrs)
    if op.name in ("reshape", "broadcast_in_dim", "iota"):
        attrs["shape"] = shapes[0]
    elif op.name == "dynamic_slice":
        attrs["slice_sizes"] = shapes[0]
    elif op.name == "slice":
        attrs["limit_indices"] = _where_whole(op, op.attrs.dims("limit_indices"), operands)
    elif op.name == "cache_read":
        attrs = _own_slots(op, operands[0])
    elif op.name == "gather":
        attrs["slice_sizes"] = _where_whole(op, op.attrs.dims("slice_sizes"), operands)
    elif op.name == "convolution":
        attrs |= _own_groups(op, operands, shapes[0])
    return attrs


def _own_groups(op: Op, operands: Sequence[Value], shape: Shape) -> dict[str, AttrValue]:
    """The groups of a convolution that this rank has, of features or of the batch."""
    given, kernel, result = dims_of(op.attrs.text("dim_labels"))
    pairs = {
        "feature_group_count": (operands[0].shape[given.second], operands[1].shape[kernel.first]),
        "batch_group_count": (operands[0].shape[given.first], shape[result.first]),
    }
    return {
        key: whole // part
        for key, (whole, part) in pairs.items()
        if op.attrs.integer(key) > 1 and isinstance(whole, int) and isinstance(part, int) and part
    }


def _where_whole(op: Op, sizes: Sequence[Dim], operands: Sequence[Value]) -> tuple[Dim, ...]:
    """``sizes`` with those of whole, sharded dimensions replaced by the size of the part."""
    shapes = zip(sizes, op.operands[0].shape, operands[0].shape, strict=True)
    return tuple(part if size == whole else size for size, whole, part in shapes)


# (context, op, parts of the operands, the sharding of the op) -> results.
SpecialForm = Callable[[EmitContext, Op, Sequence[Value], Strategy], Sequence[Value]]


def _embedding(
    context: EmitContext, op: Op, operands: Sequence[Value], strategy: Strategy
) -> Sequence[Value]:
    """Rows of this part of the table; zeros for an id of another rank."""
    b, (table, ids) = context.b, operands
    rows, total = table.shape[0], op.operands[0].shape[0]
    assert isinstance(rows, int)
    assert isinstance(total, int)
    zero, last = b.full(0, ids.type), b.full(total - 1, ids.type)
    # Ids outside of the whole table are clamped first.
    clamped = b.binary("minimum", b.binary("maximum", ids, zero), last)
    start = b.binary("multiply", context.place(strategy.special), rows)
    local = b.binary("subtract", clamped, b.broadcast_in_dim(start, ids.shape, []))
    ours = in_range(b, local, rows)
    found = b.embedding(table, local)
    wide = b.broadcast_in_dim(ours, found.shape, list(range(len(ids.shape))))
    return [b.select(wide, found, b.full(0, found.type))]


def _kv_update(
    context: EmitContext, op: Op, operands: Sequence[Value], strategy: Strategy
) -> Sequence[Value]:
    """Rows and slots of a cache by number within this part; those of other parts are dropped."""
    cache, new, rows, slots = operands
    by_row, by_slot, *_ = strategy.in_shardings[0].dims
    if by_row:
        rows = _within(context, rows, cache.shape[0], by_row)
    if by_slot:
        slots = _within(context, slots, cache.shape[1], by_slot)
    return context.b.emit(op.name, [cache, new, rows, slots], dict(op.attrs)).results


def _cache_read(
    context: EmitContext, op: Op, operands: Sequence[Value], strategy: Strategy
) -> Sequence[Value]:
    """Rows of a cache by number within this part; a row of another part is idle, or zeros.

    Rows that a call selects are those of one part each, so their sum over parts is what they hold.
    """
    b, (cache, rows) = context.b, operands
    mine = _within(context, rows, cache.shape[0], strategy.in_shardings[0].dims[0])
    made = b.emit(op.name, [cache, mine], _own_slots(op, cache)).results
    if op.attrs.text("rows") == "in_place":
        return made
    (read,) = made
    held = cache.shape[0]
    assert isinstance(held, int)
    ours = b.compare(mine, b.full(held, mine.type), "LT")
    return [b.select(b.broadcast_in_dim(ours, read.shape, [0]), read, b.full(0, read.type))]


def _own_slots(op: Op, cache: Value) -> dict[str, AttrValue]:
    """The attributes of a ``cache_read`` of this rank's part of the slots."""
    whole, own = op.operands[0].shape[1], cache.shape[1]
    attended, parts = op.attrs.dim("attended"), op.attrs.integer("parts")
    if whole != own:
        assert isinstance(whole, int)
        assert isinstance(own, int)
        assert isinstance(attended, int)
        attended, parts = attended * own // whole, max(parts * own // whole, 1)
    return {**op.attrs, "attended": attended, "parts": parts}


def _within(context: EmitContext, numbers: Value, size: Dim, axes: Axes) -> Value:
    """Numbers along a divided dimension within this rank's part of ``size``, else that size."""
    b = context.b
    assert isinstance(size, int)
    start = b.binary("multiply", context.place(axes), size)
    local = b.binary("subtract", numbers, b.broadcast_in_dim(start, numbers.shape, []))
    return b.select(in_range(b, local, size), local, b.full(size, local.type))


def _attention(
    context: EmitContext, op: Op, operands: Sequence[Value], strategy: Strategy
) -> Sequence[Value]:
    """Attention of the slots of this part, scaled to its share of that of all slots.

    The shares are a sum that is still to be taken over the ranks. Where tokens are divided over the
    same ranks, blocks of slots come by in a ring instead.
    """
    b, mesh, axes = context.b, context.mesh, strategy.special
    if strategy.in_shardings[0].dims[1] == axes:
        with b:
            return Ring(b, mesh, axes, context.place(axes), op, operands).attention()
    at = attention_terms(operands).sinks
    given = [value for index, value in enumerate(operands) if index != at]
    part = b.emit("attention_part", given, dict(op.attrs)).results
    rows = part[0].shape
    pair = b.concatenate([b.reshape(value, (1, 1, *rows)) for value in part[:2]], 1)
    every = b.all_gather(pair, mesh.groups(axes), 0)
    shape = (mesh.size(axes), *rows)
    tops, sums = (b.reshape(b.slice_dim(every, 1, i, i + 1), shape) for i in range(2))
    share = share_of_part(b, part, tops, sums, None if at is None else operands[at])
    return [b.convert(share, op.result.dtype)]


def _top_k(
    context: EmitContext, op: Op, operands: Sequence[Value], strategy: Strategy
) -> Sequence[Value]:
    """Top-k of each part, all-gather, then top-k of those; ties go to the first part."""
    b, (x,), axes = context.b, operands, strategy.special
    k, last, size = op.attrs.integer("k"), x.type.rank - 1, x.shape[-1]
    assert isinstance(size, int)
    values, places = b.top_k(x, min(k, size))
    start = b.binary("multiply", context.place(axes), size)
    places = b.binary("add", places, b.broadcast_in_dim(start, places.shape, []))
    groups = context.mesh.groups(axes)
    found = [b.all_gather(value, groups, last) for value in (values, places)]
    # Positions increase from part to part, and the sort is stable.
    ordered = b.sort(found, last, descending=True)
    return [b.slice_dim(value, last, 0, k) for value in ordered]


def _experts(
    context: EmitContext, op: Op, operands: Sequence[Value], strategy: Strategy
) -> Sequence[Value]:
    """The experts of this part by number within it; one rank adds the bias of the results.

    Numbers of other parts are outside of 0..E-1, and those contribute nothing. Tokens that
    ranks have a part of each are exchanged.
    """
    plain, low_rank = expert_operands(operands)
    b, (x, indices, weights, *held) = context.b, plain
    experts, inner, _ = strategy.in_shardings[3].dims
    split = exchanged_axes(op, strategy)
    if experts and not split:
        count = held[0].shape[0]
        assert isinstance(count, int)
        start = b.binary("multiply", context.place(experts), count)
        indices = b.binary("subtract", indices, b.broadcast_in_dim(start, indices.shape, []))
    if inner and len(held) > 3:
        first = context.place(inner)
        ours = b.compare(first, b.full(0, first.type), "EQ")
        bias = held[-1]
        held[-1] = b.select(b.broadcast_in_dim(ours, bias.shape, []), bias, b.full(0, bias.type))
    if split:
        at = strategy.in_shardings[0].dims.index(split)
        places = context.place(split), context.place(experts)
        exchange = ExpertExchange(b, context.mesh, op, split, experts, *places, at)
        with b:
            return exchange.experts(x, (indices, weights), held, low_rank)
    return b.emit(op.name, [x, indices, weights, *held, *low_rank], dict(op.attrs)).results


def _last_token(
    context: EmitContext, op: Op, operands: Sequence[Value], strategy: Strategy
) -> Sequence[Value]:
    """The token at the last position if it is among those of this part, else zeros.

    Not the op itself: of a single token it gives that token, whatever its position is.
    """
    return [sum_at_last(context.b, *operands)]


SPECIAL_FORMS: Mapping[str, SpecialForm] = {
    "embedding": _embedding,
    "attention": _attention,
    "kv_update": _kv_update,
    "cache_read": _cache_read,
    "top_k": _top_k,
    "last_token": _last_token,
    "experts": _experts,
}
