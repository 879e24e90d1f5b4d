"""Decompositions of the ops of token trees."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.composites.attention import kv_update, last_unread
from graphgen.composites.registry import decomposition
from graphgen.ir import Attrs, Value, attrs_of
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dtype import f32, s32


@decomposition
def tree_slots(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Node numbers after the slot of node 0; -1 for padding."""
    (positions,) = operands
    first = b.broadcast_in_dim(_first(b, positions), positions.shape, [0])
    slots = b.binary("add", first, b.iota(s32, positions.shape, 1))
    return [b.select(_real(b, positions), slots, b.full(-1, slots.type))]


@decomposition
def tree_positions(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A sum over nodes, all but one of them 0."""
    positions, slots = operands
    node = _nodes(b, positions, slots)
    wide = b.broadcast_in_dim(positions, node.shape, [0, 1])
    held = b.reduce(b.select(node, wide, b.full(0, wide.type)), [1], "add")
    inside = b.reduce(b.convert(node, s32), [1], "add")
    return [b.select(b.compare(inside, b.full(0, inside.type), "GT"), held, slots)]


@decomposition
def tree_mask(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Slots before the tree, or a product of the ancestors with the node of each slot.

    The product has one term that is not 0 at most, so it is exact in any element type.
    """
    positions, slots, ancestors = operands
    shape = (*positions.shape, slots.shape[1])
    keys = b.broadcast_in_dim(slots, shape, [0, 2])
    first = b.broadcast_in_dim(_first(b, positions), shape, [0])
    before = b.binary(
        "and", b.compare(keys, b.full(0, keys.type), "GE"), b.compare(keys, first, "LT")
    )
    one = b.compare(ancestors, b.full(0, ancestors.type), "NE")
    node = _nodes(b, positions, slots)
    read = b.dot_general(b.convert(one, f32), b.convert(node, f32), ([2], [1]), ([0], [0]))
    allowed = b.binary("or", before, b.compare(read, b.full(0.0, read.type), "GT"))
    real = b.broadcast_in_dim(_real(b, positions), shape, [0, 1])
    allowed = b.binary("and", allowed, real)
    oldest = list(last_unread(b, positions, attrs))
    if not oldest:
        return [allowed]
    held = b.broadcast_in_dim(tree_positions(b, [positions, slots], EMPTY)[0], shape, [0, 2])
    for before in oldest:
        last = b.broadcast_in_dim(before, shape, [0, 1])
        allowed = b.binary("and", allowed, b.compare(held, last, "GT"))
    return [allowed]


@decomposition
def kv_move(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A gather of the sources, written by ``kv_update``; what has no source has no place."""
    cache, from_rows, from_slots, rows, slots = operands
    shape = from_slots.shape
    sources = (b.broadcast_in_dim(from_rows, shape, [0]), from_slots)
    # Programs of a move have the sizes of one cache.
    known = [in_range(b, *pair) for pair in zip(sources, cache.type.dims, strict=False)]
    moved = b.binary("and", *known)
    zero = b.full(0, from_slots.type)
    places = [b.reshape(b.select(moved, source, zero), (*shape, 1)) for source in sources]
    found = b.op(
        "gather",
        cache,
        b.concatenate(places, 2),
        offset_dims=(2, 3),
        collapsed_slice_dims=(0, 1),
        start_index_map=(0, 1),
        index_vector_dim=2,
        slice_sizes=(1, 1, *cache.shape[2:]),
    )
    to = b.select(moved, slots, b.full(-1, slots.type))
    return kv_update(b, [cache, found, rows, to], attrs_of({"rows": "any"}))


def _first(b: Builder, positions: Value) -> Value:
    """The position s32 [B] of node 0 of each row."""
    return b.reshape(b.slice_dim(positions, 1, 0, 1), positions.shape[:1])


def _real(b: Builder, positions: Value) -> Value:
    return b.compare(positions, b.full(0, positions.type), "GE")


def _nodes(b: Builder, positions: Value, slots: Value) -> Value:
    """pred [B,S,C]: which node each slot holds."""
    shape = (*positions.shape, slots.shape[1])
    own = b.broadcast_in_dim(tree_slots(b, [positions], EMPTY)[0], shape, [0, 1])
    keys = b.broadcast_in_dim(slots, shape, [0, 2])
    held = b.compare(keys, b.full(0, keys.type), "GE")
    return b.binary("and", held, b.compare(own, keys, "EQ"))
