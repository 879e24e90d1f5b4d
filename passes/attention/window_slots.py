"""The slots that a block of tokens reads under a window: their number, and the first of them.

The positions of a block follow each other, and the slots of plain rows are positions: a block of T
tokens whose masks let each of them read W slots at most reads T + W - 1 slots that follow each
other. Where they begin depends on the positions of a call, how many there are does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.ops.attention import attention_terms


@dataclass(frozen=True, slots=True)
class WindowedAttention:
    """An attention whose tokens read few slots.

    Attributes:
        mask: the op of its mask.
        reach: slots that a token reads at most.
        slots: of the attention.
    """

    mask: Op
    reach: int
    slots: int

    @property
    def positions(self) -> Value:
        """The positions s32 [B,S] of the tokens, -1 for padding."""
        return self.mask.operands[0]

    def count(self, tokens: int) -> int:
        """Slots that a block of tokens reads at most."""
        return min(self.slots, tokens + self.reach - 1)

    def firsts(self, b: Builder, positions: Value, count: int) -> Sequence[Value]:
        """Per row, s32 [], the first of ``count`` slots that all that a block reads is among.

        Args:
            b: where ops are appended.
            positions: of the block's tokens, s32 [B,T].
            count: at least that of :meth:`count`.
        """
        zero, last = b.full(0, positions.type), b.full(self.slots, positions.type)
        known = b.select(b.compare(positions, zero, "GE"), positions, last)
        begins = b.reduce(known, [1], "minimum") - (self.reach - 1)
        least, most = b.literal(0, s32), b.literal(self.slots - count, s32)
        kept = b.clamp(least, begins, most)
        rows = positions.type.dims[0]
        return [b.reshape(b.slice_dim(kept, 0, row, row + 1), ()) for row in range(rows)]


def windowed(
    op: Op, slots_of: Callable[[Value], Value] = lambda value: value
) -> WindowedAttention | None:
    """The window of an attention whose slots are plain rows; ``None`` if it has none.

    Biases of scores cover all slots, so that an attention with linear biases has none.

    Args:
        op: the composite.
        slots_of: of a value over slots that are taken in another order, the one that is in order.
    """
    mask = op.operands[3].producer("attention_mask")
    if mask is None or slots_of(mask.operands[1]).producer("key_positions") is None:
        return None
    terms = attention_terms(op.operands)
    limits = [mask.attrs.integer(name) for name in ("window", "chunk")]
    reach = min([limit for limit in limits if limit], default=0)
    if not reach or terms.distance is not None or terms.bias is not None:
        return None
    return WindowedAttention(mask, reach, op.operands[1].type.dims[1])


def slots_from(b: Builder, value: Value, firsts: Sequence[Value], count: int) -> Value:
    """Of each row of ``value`` [B,C,...], ``count`` slots from its first one on."""
    zero, sizes = b.literal(0, s32), (1, count, *value.shape[2:])
    rest = [zero] * (value.type.rank - 2)
    parts = [
        b.dynamic_slice(value, [b.literal(row, s32), first, *rest], sizes)
        for row, first in enumerate(firsts)
    ]
    return parts[0] if len(parts) == 1 else b.concatenate(parts, 0)
