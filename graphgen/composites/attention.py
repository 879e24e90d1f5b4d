"""Decompositions of attention, its mask, and KV-cache reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from graphgen.build import Builder
from graphgen.composites.registry import decomposition
from graphgen.ir import Attrs, DType, Value
from graphgen.ir.dims import Shape
from graphgen.ir.dtype import f32, lowest, s32
from graphgen.ops.attention import attention_terms


@decomposition
def attention_mask(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``0 <= key <= position``, of the window and of the chunk if there are such."""
    positions, held = operands
    keys = b.broadcast_in_dim(held, (*positions.shape, held.shape[1]), [0, 2])

    def filled() -> Value:
        return b.compare(keys, b.full(0, keys.type), "GE")

    return [masked_by(b, positions, keys, filled, attrs)]


def masked_by(
    b: Builder, positions: Value, keys: Value, filled: Callable[[], Value], attrs: Attrs
) -> Value:
    """pred [B,S,C]: the filled slots whose keys a token reads.

    Args:
        b: where ops are appended.
        positions: s32 [B,S], of the tokens.
        keys: s32 [B,S,C], the position in each slot, where it is filled.
        filled: makes pred [B,S,C], the slots that hold a position.
        attrs: those of the mask: ``window``, positions a token reads at most, and ``chunk``, the
            size of the chunks of which it reads its own; 0 for all.
    """
    causal = b.compare(keys, b.broadcast_in_dim(positions, keys.shape, [0, 1]), "LE")
    allowed = b.binary("and", causal, filled())
    for before in last_unread(b, positions, attrs):
        first = b.broadcast_in_dim(before, keys.shape, [0, 1])
        allowed = b.binary("and", allowed, b.compare(keys, first, "GT"))
    return allowed


def last_unread(b: Builder, positions: Value, attrs: Attrs) -> Iterator[Value]:
    """The last position before the window, and that before the chunk, like ``positions``.

    None is made for a window or a chunk of 0. Remainders of -1, of padding, do not matter.
    """
    window, chunk = attrs.integer("window"), attrs.integer("chunk")
    if window:
        yield b.binary("subtract", positions, window)
    if chunk:
        within = b.binary("remainder", positions, chunk)
        yield b.binary("subtract", b.binary("subtract", positions, within), 1)


@decomposition
def key_positions(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """The slot numbers, and -1 from each row's length on."""
    (lengths,) = operands
    shape = (lengths.shape[0], attrs.dim("attended"))
    slots = b.iota(s32, shape, 1)
    filled = b.compare(slots, b.broadcast_in_dim(lengths, shape, [0]), "LT")
    return [b.select(filled, slots, b.full(-1, slots.type))]


@decomposition
def key_distance(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """An exact difference of integers."""
    (positions,) = operands
    shape = (*positions.shape, attrs.dim("attended"))
    slots = b.iota(s32, shape, 2)
    return [b.convert(slots - b.broadcast_in_dim(positions, shape, [0, 1]), f32)]


@decomposition
def cache_read(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A slice of the slots, then a gather of the rows, unless the rows are the identity."""
    cache, seq_ids = operands
    attended, parts = attrs.dim("attended"), attrs.integer("parts")
    rows, slots, *window = cache.shape
    if slots == attended:
        front = cache
    elif parts == 1:
        front = b.slice_dim(cache, 1, 0, attended)
    else:
        assert isinstance(slots, int)
        assert isinstance(attended, int)
        apart = b.reshape(cache, (rows, parts, slots // parts, *window))
        front = b.slice_dim(apart, 2, 0, attended // parts)
        front = b.reshape(front, (rows, attended, *window))
    if attrs.text("rows") == "in_place":
        return [front]
    return [
        b.op(
            "gather",
            front,
            seq_ids,
            offset_dims=(1, 2, 3),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=1,
            slice_sizes=(1, *front.shape[1:]),
        )
    ]


@decomposition
def kv_update(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A scatter of [K,D] windows at (row, slot); windows outside are dropped by its definition."""
    cache, new, seq_ids, slots = operands
    batch, active = slots.shape
    rows = b.broadcast_in_dim(seq_ids, (batch, active, 1), [0])
    places = b.reshape(slots, (batch, active, 1))
    return [
        b.op(
            "scatter",
            cache,
            b.concatenate([rows, places], 2),
            new,
            update_window_dims=(2, 3),
            inserted_window_dims=(0, 1),
            scatter_dims_to_operand_dims=(0, 1),
            index_vector_dim=2,
        )
    ]


@decomposition
def attention(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Scores in f32, masked; softmax with the maximum subtracted; then the weighted sum."""
    return [attention_with(b, operands, attrs, f32)]


def attention_with(b: Builder, operands: Sequence[Value], attrs: Attrs, softmax: DType) -> Value:
    """The same with a softmax in the type ``softmax``, to which scores are rounded."""
    query, value = operands[0], operands[2]
    scores = masked_scores(b, operands, attrs, softmax)
    terms = attention_terms(operands)
    sinks = operands[terms.sinks] if terms.sinks is not None else None
    weights = b.softmax(scores, 4) if sinks is None else softmax_with_sinks(b, scores, sinks)
    # [B,K,S,G,C] x [B,C,K,W] -> [B,K,S,G,W]
    context = b.dot_general(
        b.convert(weights, value.dtype), value, ([4], [1]), ([0, 1], [0, 2]), query.dtype
    )
    return join_heads(b, context)


def join_heads(b: Builder, context: Value) -> Value:
    """[B,K,S,G,W] as [B,S,H,W], query head ``k * G + g``."""
    batch, kv_heads, active, group, width = context.shape
    assert isinstance(kv_heads, int)
    assert isinstance(group, int)
    ordered = b.transpose(context, [0, 2, 1, 3, 4])
    return b.reshape(ordered, (batch, active, kv_heads * group, width))


def masked_scores(b: Builder, operands: Sequence[Value], attrs: Attrs, softmax: DType) -> Value:
    """The scores [B,K,S,G,C] of attention in the type ``softmax``, its lowest where masked.

    Args:
        b: where ops are appended.
        operands: of ``attention``; values and sinks are not read.
        attrs: of ``attention``.
        softmax: a float, to which the f32 scores are rounded.
    """
    query, key, _, mask = operands[:4]
    batch, active, heads, size = query.shape
    kv_heads = key.shape[2]
    assert isinstance(heads, int)
    assert isinstance(kv_heads, int)
    grouped = b.reshape(query, (batch, active, kv_heads, heads // kv_heads, size))
    # [B,S,K,G,D] x [B,C,K,D] -> [B,K,S,G,C]
    scores = b.dot_general(grouped, key, ([4], [3]), ([0, 2], [0, 2]), f32) * attrs.number("scale")
    cap = attrs.number("softcap")
    if cap:
        scores = b.unary("tanh", scores / cap) * cap
    terms = attention_terms(operands)
    if terms.slopes is not None and terms.distance is not None:
        slopes = by_head(b, operands[terms.slopes], scores.shape)
        distance = b.broadcast_in_dim(operands[terms.distance], scores.shape, [0, 2, 4])
        scores = scores + slopes * distance
    if terms.bias is not None:
        scores = scores + _over_scores(b, operands[terms.bias], scores.shape)
    allowed = _over_scores(b, mask, scores.shape)
    scores = b.convert(scores, softmax)
    return b.select(allowed, scores, b.full(lowest(softmax), scores.type))


def by_head(b: Builder, value: Value, shape: Shape) -> Value:
    """Broadcast a number per query head to scores or rows of them, [B,K,S,G,...]."""
    grouped = b.reshape(value, (shape[1], shape[3]))
    return b.broadcast_in_dim(grouped, shape, [1, 3])


def _over_scores(b: Builder, value: Value, shape: Shape) -> Value:
    """Lay out [B,S,C] or [B,H,S,C] as the scores [B,K,S,G,C]."""
    if value.type.rank == 3:
        return b.broadcast_in_dim(value, shape, [0, 2, 4])
    batch, kv_heads, active, group, attended = shape
    grouped = b.reshape(value, (batch, kv_heads, group, active, attended))
    return b.transpose(grouped, [0, 1, 3, 2, 4])


def softmax_with_sinks(b: Builder, scores: Value, sinks: Value) -> Value:
    """Softmax of scores [B,K,S,G,C] with one more slot per head, which is left out again."""
    rows, kept = scores.shape[:4], [0, 1, 2, 3]
    sink = by_head(b, b.convert(sinks, scores.dtype), rows)
    top = b.maximum(b.reduce(scores, [4], "maximum"), sink)
    powers = b.exponential(b.subtract(scores, b.broadcast_in_dim(top, scores.shape, kept)))
    total = b.reduce(powers, [4], "add") + b.exponential(b.subtract(sink, top))
    return b.divide(powers, b.broadcast_in_dim(total, scores.shape, kept))
