"""Decompositions of embedding, norms, activations, RoPE and last_token."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.composites.registry import decomposition
from graphgen.ir import Attrs, Dim, Value, tensor
from graphgen.ir.dtype import f32


@decomposition
def embedding(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """One gather of whole rows."""
    table, ids = operands
    rank = len(ids.shape)
    return [
        b.op(
            "gather",
            table,
            ids,
            offset_dims=(rank,),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=rank,
            slice_sizes=(1, table.shape[1]),
        )
    ]


@decomposition
def rms_norm(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Mean square in f32; the quotient is rounded to the weight's type before the weight."""
    x, weight = operands
    wide = b.convert(x, f32)
    scale = b.unary("rsqrt", _mean(b, wide * wide) + attrs.number("epsilon"))
    normal = b.convert(wide * _to_rows(b, scale, x.shape), weight.dtype)
    return [normal * b.broadcast_in_dim(weight, x.shape, [len(x.shape) - 1])]


@decomposition
def layer_norm(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Mean, then the mean square of the deviations, in f32; rounded once at the end."""
    x, weight, bias = operands
    wide = b.convert(x, f32)
    centered = wide - _to_rows(b, _mean(b, wide), x.shape)
    scale = b.unary("rsqrt", _mean(b, centered * centered) + attrs.number("epsilon"))
    normal = centered * _to_rows(b, scale, x.shape)
    factor, offset = [
        b.broadcast_in_dim(b.convert(vector, f32), x.shape, [len(x.shape) - 1])
        for vector in (weight, bias)
    ]
    return [b.convert(normal * factor + offset, weight.dtype)]


def _mean(b: Builder, x: Value) -> Value:
    """The mean over the last dimension, which is removed."""
    last = len(x.shape) - 1
    total = b.reduce(x, [last], "add")
    size = x.shape[last]
    if isinstance(size, int):
        return total * (1.0 / size) if size & (size - 1) == 0 else total / float(size)
    # The count of elements is written as a reduction of ones when it is symbolic.
    return total / b.reduce(b.full(1.0, x.type), [last], "add")


def _to_rows(b: Builder, x: Value, shape: Sequence[Dim]) -> Value:
    """Broadcast one number per row to the row."""
    return b.broadcast_in_dim(x, shape, list(range(len(shape) - 1)))


@decomposition
def silu(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``x * logistic(x)`` in f32."""
    wide = b.convert(operands[0], f32)
    return [b.convert(wide * b.unary("logistic", wide), operands[0].dtype)]


@decomposition
def gelu(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``x * logistic(u)`` = ``x/2 * (1 + tanh(u/2))``, more accurate in the tail."""
    (x,) = operands
    wide = b.convert(x, f32)
    if attrs.text("approximate") == "none":
        share = (b.unary("erf", wide * math.sqrt(0.5)) + 1.0) * 0.5
        return [b.convert(wide * share, x.dtype)]
    if attrs.text("approximate") == "tanh":
        inner = (wide + wide * wide * wide * 0.044715) * math.sqrt(8 / math.pi)
    else:
        inner = wide * 1.702
    return [b.convert(wide * b.unary("logistic", inner), x.dtype)]


@decomposition
def last_token(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A masked sum; of one token that token."""
    x, positions, lengths = operands
    batch, active, _ = x.shape
    if active == 1:
        # A step of one token has nothing to choose from, except for an idle row.
        return [b.reshape(x, (batch, x.shape[2]))]
    return [sum_at_last(b, x, positions, lengths)]


def sum_at_last(b: Builder, x: Value, positions: Value, lengths: Value) -> Value:
    """The sum [B,E] of the tokens of x [B,S,E] at position ``lengths - 1``.

    At most one addend of a row is not zero, so no rounding happens.
    """
    batch, active, _ = x.shape
    last = b.broadcast_in_dim(b.binary("subtract", lengths, 1), (batch, active), [0])
    # An idle row has length 0, and its padding is at -1 as well.
    real = b.compare(positions, b.full(0, positions.type), "GE")
    chosen = b.binary("and", b.compare(positions, last, "EQ"), real)
    zero = b.full(0.0, x.type)
    kept = b.select(b.broadcast_in_dim(chosen, x.shape, [0, 1]), x, zero)
    return b.reduce(kept, [1], "add")


@decomposition
def rope_table(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``cos(p * f) * scale`` and ``sin(p * f) * scale`` in f32."""
    (positions,) = operands
    literal = attrs.literal("inv_freq")
    rank = len(positions.shape)
    shape = (*positions.shape, literal.shape[0])
    frequencies = b.op("constant", value=literal)
    angle = b.broadcast_in_dim(b.convert(positions, f32), shape, list(range(rank)))
    angle = angle * b.broadcast_in_dim(frequencies, shape, [rank])
    scale = attrs.number("scale")
    tables = [b.unary("cosine", angle), b.unary("sine", angle)]
    return tables if scale == 1.0 else [table * scale for table in tables]


@decomposition
def rope(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``x1*cos - x2*sin`` and ``x2*cos + x1*sin``, x1 and x2 being the halves or the neighbors."""
    x, cos, sin = operands
    size, half = x.shape[3], cos.shape[2]
    assert isinstance(half, int)
    if attrs.text("pairs") == "neighbors":
        return [b.convert(_turned_neighbors(b, b.convert(x, f32), cos, sin, half), x.dtype)]
    wide = b.convert(x, f32)
    first = b.slice_dim(wide, 3, 0, half)
    second = b.slice_dim(wide, 3, half, 2 * half)
    cos = b.broadcast_in_dim(cos, first.shape, [0, 1, 3])
    sin = b.broadcast_in_dim(sin, first.shape, [0, 1, 3])
    parts = [first * cos - second * sin, second * cos + first * sin]
    if size != 2 * half:
        parts.append(b.slice_dim(wide, 3, 2 * half, size))
    return [b.convert(b.concatenate(parts, 3), x.dtype)]


def _turned_neighbors(b: Builder, x: Value, cos: Value, sin: Value, half: int) -> Value:
    """``x`` with each pair in a dimension of its own: [B,S,H,R/2,2]."""
    size, shape = x.shape[3], (*x.shape[:3], half)
    front = b.reshape(b.slice_dim(x, 3, 0, 2 * half), (*shape, 2))
    first, second = [b.reshape(b.slice_dim(front, 4, i, i + 1), shape) for i in (0, 1)]
    cos = b.broadcast_in_dim(cos, shape, [0, 1, 3])
    sin = b.broadcast_in_dim(sin, shape, [0, 1, 3])
    parts = [first * cos - second * sin, second * cos + first * sin]
    pairs = b.concatenate([b.reshape(part, (*shape, 1)) for part in parts], 4)
    turned = b.reshape(pairs, (*x.shape[:3], 2 * half))
    if size == 2 * half:
        return turned
    return b.concatenate([turned, b.slice_dim(x, 3, 2 * half, size)], 3)


def take_by_gather(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A gather of blocks, then zeros for indices out of range."""
    operand, indices = operands
    axis, block = attrs.integer("dimension"), attrs.integer("block")
    before, after = operand.shape[:axis], operand.shape[axis + 1 :]
    size = operand.shape[axis]
    assert isinstance(size, int)
    count = size // block
    found = b.op(
        "gather",
        b.reshape(operand, (*before, count, block, *after)),
        indices,
        offset_dims=tuple(dim for dim in range(operand.type.rank + 1) if dim != axis),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        index_vector_dim=1,
        slice_sizes=(*before, 1, block, *after),
    )
    inside = in_range(b, indices, count)
    zeros = b.full(0, tensor(operand.dtype, found.shape))
    chosen = b.select(b.broadcast_in_dim(inside, found.shape, [axis]), found, zeros)
    return [b.reshape(chosen, (*before, indices.shape[0] * block, *after))]
