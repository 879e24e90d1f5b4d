"""The composite ``attention_part``, and the share of a part in the attention of all parts."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.attention import join_heads
from graphgen.composites.decomposition_registry import decomposition
from graphgen.composites.partial_attention import (
    PartialAttention,
    partial_attention,
    quotient,
)
from graphgen.ir import Attrs, DType, Value
from graphgen.ir.dtype import f32


@decomposition
def attention_part(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """The largest score, the sum of powers, and the sum of the values times their powers."""
    return attention_part_with(b, operands, attrs, f32)


def attention_part_with(
    b: Builder, operands: Sequence[Value], attrs: Attrs, softmax: DType
) -> Sequence[Value]:
    """The same with powers of the type ``softmax``."""
    return part_results(b, partial_attention(b, operands, attrs, softmax))


def part_results(b: Builder, part: PartialAttention) -> Sequence[Value]:
    """The results of ``attention_part``: f32 [B,S,H] twice, and [B,S,H,W]."""
    out = join_heads(b, part.out)
    rows = [b.transpose(row, [0, 2, 1, 3]) for row in (part.maximum, part.total)]
    return [*[b.reshape(row, out.shape[:3]) for row in rows], out]


def attention_of_part(
    b: Builder, part: PartialAttention, dtype: DType, sinks: Value | None
) -> Value:
    """The attention ``dtype`` [B,S,H,W] of a part that has all slots.

    Args:
        b: where ops are appended.
        part: as ``attention_part`` gives it.
        dtype: of the result.
        sinks: f32 [H], scores of a slot more of each head; ``None`` for none.
    """
    rows = part.total.shape
    sink = None if sinks is None else b.broadcast_in_dim(b.convert(sinks, f32), rows, [2])
    return b.convert(quotient(b, part, sink), dtype)


def share_of_part(
    b: Builder, part: Sequence[Value], tops: Value, sums: Value, sinks: Value | None
) -> Value:
    """One part's share f32 [B,S,H,W] of the attention of all parts, which is the sum of shares.

    Args:
        b: where ops are appended.
        part: results of ``attention_part``.
        tops, sums: the first two results of all parts, f32 [n,B,S,H].
        sinks: f32 [H], scores of a slot more of each head, which belongs to no part.
    """
    own, _, out = part
    top = b.reduce(tops, [0], "maximum")
    sink = b.broadcast_in_dim(sinks, top.shape, [2]) if sinks is not None else None
    if sink is not None:
        top = b.maximum(top, sink)
    scale = b.exponential(b.subtract(tops, b.broadcast_in_dim(top, tops.shape, [1, 2, 3])))
    total = b.reduce(b.multiply(sums, scale), [0], "add")
    if sink is not None:
        total = b.add(total, b.exponential(b.subtract(sink, top)))
    share = b.divide(b.exponential(b.subtract(own, top)), total)
    return b.multiply(out, b.broadcast_in_dim(share, out.shape, [0, 1, 2]))
