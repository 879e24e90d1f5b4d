"""Decompositions of attention, its mask, and KV-cache reads and writes."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.basics import softmax
from graphgen.composites.decomposition_registry import Decomposition
from graphgen.ir import Attrs, Value
from graphgen.ir.dims import Shape
from graphgen.ir.dtype import f32, lowest, s32


def attention_mask(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``c <= position`` and ``c < length``, and ``c > position - window`` if window is not 0."""
    positions, lengths = operands
    shape = (*positions.shape, attrs.dim("attended"))
    ring = attrs.integer("ring")
    slots = _held(b, lengths, shape, ring) if ring else b.iota(s32, shape, 2)
    causal = b.compare(slots, b.broadcast_in_dim(positions, shape, [0, 1]), "LE")
    if ring:
        filled = b.compare(slots, b.full(0, slots.type), "GE")
    else:
        filled = b.compare(slots, b.broadcast_in_dim(lengths, shape, [0]), "LT")
    allowed = b.binary("and", causal, filled)
    window = attrs.integer("window")
    if not window:
        return [allowed]
    first = b.broadcast_in_dim(positions - float(window), shape, [0, 1])
    return [b.binary("and", allowed, b.compare(slots, first, "GT"))]


def _held(b: Builder, lengths: Value, shape: Shape, ring: int) -> Value:
    """s32 [B,S,C]: the newest position below ``lengths`` in each slot; negative for an empty slot.

    It is the same for all tokens of a row.
    """
    flat = (shape[0], shape[2])
    newest = b.broadcast_in_dim(lengths - 1.0, flat, [0])
    # A row without tokens has the newest position -1, so this is -ring at the least.
    steps_back = b.modulo(newest - b.iota(s32, flat, 1), ring)
    return b.broadcast_in_dim(newest - steps_back, shape, [0, 2])


def key_distance(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """An exact difference of integers."""
    (positions,) = operands
    shape = (*positions.shape, attrs.dim("attended"))
    slots = b.iota(s32, shape, 2)
    return [b.convert(slots - b.broadcast_in_dim(positions, shape, [0, 1]), f32)]


def cache_read(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A slice of the slots, then a gather of the rows, unless the rows are the identity."""
    cache, seq_ids = operands
    attended = attrs.dim("attended")
    front = cache if cache.shape[1] == attended else b.slice_dim(cache, 1, 0, attended)
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


def kv_update(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A scatter of [K,D] windows at (row, slot); windows outside are dropped by its definition."""
    cache, new, seq_ids, positions = operands
    batch, active = positions.shape
    rows = b.broadcast_in_dim(seq_ids, (batch, active, 1), [0])
    slots = b.reshape(positions, (batch, active, 1))
    return [
        b.op(
            "scatter",
            cache,
            b.concatenate([rows, slots], 2),
            new,
            update_window_dims=(2, 3),
            inserted_window_dims=(0, 1),
            scatter_dims_to_operand_dims=(0, 1),
            index_vector_dim=2,
        )
    ]


def attention(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Scores in f32, masked; softmax with the maximum subtracted; then the weighted sum."""
    query, key, value, mask, *bias = operands
    batch, active, heads, size = query.shape
    attended, kv_heads = key.shape[1], key.shape[2]
    assert isinstance(heads, int)
    assert isinstance(kv_heads, int)
    grouped = b.reshape(query, (batch, active, kv_heads, heads // kv_heads, size))
    # [B,S,K,G,D] x [B,C,K,D] -> [B,K,S,G,C]
    scores = b.dot_general(grouped, key, ([4], [3]), ([0, 2], [0, 2]), f32) * attrs.number("scale")
    if bias:
        slopes = b.reshape(bias[0], (kv_heads, heads // kv_heads))
        slopes = b.broadcast_in_dim(slopes, scores.shape, [1, 3])
        scores = scores + slopes * b.broadcast_in_dim(bias[1], scores.shape, [0, 2, 4])
    allowed = b.broadcast_in_dim(mask, scores.shape, [0, 2, 4])
    scores = b.select(allowed, scores, b.full(lowest(f32), scores.type))
    weights = softmax(b, scores, 4)
    # [B,K,S,G,C] x [B,C,K,D] -> [B,K,S,G,D]
    context = b.dot_general(
        b.convert(weights, value.dtype), value, ([4], [1]), ([0, 1], [0, 2]), query.dtype
    )
    ordered = b.transpose(context, [0, 2, 1, 3, 4])
    assert attended == value.shape[1]
    return [b.reshape(ordered, query.shape)]


ATTENTION: dict[str, Decomposition] = {
    "attention_mask": attention_mask,
    "key_distance": key_distance,
    "cache_read": cache_read,
    "kv_update": kv_update,
    "attention": attention,
}
