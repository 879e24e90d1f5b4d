"""Attention over some of the slots, and the combination of such parts: an online softmax.

For a token and a head, a part of the slots has the largest score m, the sum l of ``exp(score - m)``
and the sum o of ``exp(score - m) * value``. Two parts are one part with::

    m = max(m1, m2),  l = l1 exp(m1 - m) + l2 exp(m2 - m),  o = o1 exp(m1 - m) + o2 exp(m2 - m)

and attention over all slots is ``o / l`` (FlashAttention, arXiv 2205.14135 and 2307.08691). A sink
is a part with its score for m, l = 1 and o = 0, which is combined once.

A slot that is masked has the lowest score, and a part without allowed slots so has the lowest m: it
adds nothing to one with allowed slots. Where no part has any, all slots weigh the same, as in the
softmax over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphgen.build import Builder
from graphgen.composites.attention import by_head, join_heads, masked_scores
from graphgen.composites.registry import decomposition
from graphgen.ir import Attrs, Dim, DType, TensorType, Value, tensor
from graphgen.ir.dtype import f32, lowest
from graphgen.ops.attention import attention_terms


class PartialAttention(NamedTuple):
    """Attention over some of the slots, not yet divided by the sum of its powers.

    The three may also be as ``attention_part`` gives them: [B,S,H], [B,S,H] and [B,S,H,W].

    Attributes:
        maximum: f32 [B,K,S,G], the largest score of a token and a head ``k * G + g``.
        total: f32 [B,K,S,G], the sum of the powers ``exp(score - maximum)``.
        out: f32 [B,K,S,G,W], the sum of the values times their powers.
    """

    maximum: Value
    total: Value
    out: Value


def no_slots(b: Builder, query: TensorType, key: TensorType, value: TensorType) -> PartialAttention:
    """The part that has no slots, for operands of ``attention`` of these types."""
    batch, active, heads, _ = query.shape
    kv_heads = key.shape[2]
    assert isinstance(heads, int)
    assert isinstance(kv_heads, int)
    rows: tuple[Dim, ...] = (batch, kv_heads, active, heads // kv_heads)
    zeros = b.full(0.0, tensor(f32, (*rows, value.shape[3])))
    return PartialAttention(
        b.full(lowest(f32), tensor(f32, rows)), b.full(0.0, tensor(f32, rows)), zeros
    )


def partial_attention(
    b: Builder, operands: Sequence[Value], attrs: Attrs, softmax: DType = f32
) -> PartialAttention:
    """Attention over the slots of these operands.

    Args:
        b: where ops are appended.
        operands: of ``attention``, keys, values, mask, distances and biases those of some slots;
            sinks are left out: :func:`finished` adds them.
        attrs: of ``attention``.
        softmax: the type of the powers. Their sums are f32.
    """
    value = operands[2]
    scores = masked_scores(b, operands, attrs, softmax)
    top = b.reduce(scores, [4], "maximum")
    lowered = b.subtract(scores, b.broadcast_in_dim(top, scores.shape, [0, 1, 2, 3]))
    powers = b.exponential(lowered)
    total = b.reduce(b.convert(powers, f32), [4], "add")
    # [B,K,S,G,C] x [B,C,K,W] -> [B,K,S,G,W]
    out = b.dot_general(b.convert(powers, value.dtype), value, ([4], [1]), ([0, 1], [0, 2]), f32)
    return PartialAttention(b.convert(top, f32), total, out)


def combined(b: Builder, one: PartialAttention, other: PartialAttention) -> PartialAttention:
    """Two parts as one."""
    top = b.maximum(one.maximum, other.maximum)
    first, second = rescaled(b, one, top), rescaled(b, other, top)
    return PartialAttention(top, first.total + second.total, first.out + second.out)


def rescaled(b: Builder, part: PartialAttention, maximum: Value) -> PartialAttention:
    """The same with another maximum, f32 as its own, which is not below its own."""
    factor = b.exponential(b.subtract(part.maximum, maximum))
    spread = _over_out(b, factor, part.out)
    return PartialAttention(maximum, part.total * factor, part.out * spread)


def _over_out(b: Builder, rows: Value, out: Value) -> Value:
    """A number per token and head for each of the features of ``out``."""
    return b.broadcast_in_dim(rows, out.shape, list(range(rows.type.rank)))


def filled(
    b: Builder, part: PartialAttention, values: Value, slots: int, softmax: DType
) -> PartialAttention:
    """The same, in which all slots weigh 1 for a token that reads none.

    That is its attention; parts without an allowed slot may then be left out.

    Args:
        b: where ops are appended.
        part: of the slots that were not left out.
        values: f32 [B,K,W], of :func:`sum_of_values`.
        slots: how many there are.
        softmax: the type of the powers.
    """
    nothing = b.compare(part.maximum, b.full(lowest(softmax), part.maximum.type), "LE")
    shape = part.out.shape
    spread = b.broadcast_in_dim(values, shape, [0, 1, 4])
    every = b.broadcast_in_dim(nothing, shape, [0, 1, 2, 3])
    total = b.select(nothing, b.full(slots, part.total.type), part.total)
    return PartialAttention(part.maximum, total, b.select(every, spread, part.out))


def sum_of_values(b: Builder, value: Value) -> Value:
    """The sum f32 [B,K,W] of the values [B,C,K,W] of all slots."""
    return b.reduce(b.convert(value, f32), [1], "add")


def finished(b: Builder, part: PartialAttention, dtype: DType, sinks: Value | None = None) -> Value:
    """The attention ``dtype`` [B,S,H,W] of all slots.

    Args:
        b: where ops are appended.
        part: over all slots.
        dtype: of the result.
        sinks: f32 [H], a score per head of a slot without a value; ``None`` for none.
    """
    sink = None
    if sinks is not None:
        sink = by_head(b, b.convert(sinks, f32), part.total.shape)
    return join_heads(b, b.convert(quotient(b, part, sink), dtype))


def quotient(b: Builder, part: PartialAttention, sink: Value | None) -> Value:
    """The output of a part over all slots, divided by the sum of its powers.

    Args:
        b: where ops are appended.
        part: over all slots.
        sink: like the maximum, scores of a slot without a value; ``None`` for none.
    """
    total, out = part.total, part.out
    if sink is not None:
        top = b.maximum(part.maximum, sink)
        _, total, out = rescaled(b, part, top)
        total = total + b.exponential(b.subtract(sink, top))
    return b.divide(out, _over_out(b, total, out))


def without_sinks(operands: Sequence[Value]) -> Sequence[Value]:
    """The operands of ``attention`` but for its sinks, which are the last of them."""
    at = attention_terms(operands).sinks
    return operands if at is None else operands[:at]


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
