"""Masks over plain rows without their key positions: slot c holds position c."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.attention import masked_by
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, no_match, rule


@rule("attention_mask")
def mask_of_rows(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Compare slot numbers with positions and lengths, instead of ``key_positions`` with 0.

    Both are the same numbers; this form has no value [B,C] that is selected first.

    Given:
        arg %positions : s32[2,1]
        arg %lengths : s32[2]
        %0 = key_positions(%lengths) attended=8 : s32[2,8]
        %y = attention_mask(%positions, %0) : pred[2,1,8]

    Result:
        arg %positions : s32[2,1]
        arg %lengths : s32[2]
        %0 = key_positions(%lengths) attended=8 : s32[2,8]
        %1 = iota() dtype=s32 shape=[2,1,8] dimension=2 : s32[2,1,8]
        %2 = broadcast_in_dim(%positions) shape=[2,1,8] dimensions=[0,1] : s32[2,1,8]
        %3 = compare(%1, %2) direction=LE : pred[2,1,8]
        %4 = broadcast_in_dim(%lengths) shape=[2,1,8] dimensions=[0] : s32[2,1,8]
        %5 = compare(%1, %4) direction=LT : pred[2,1,8]
        %y = and(%3, %5) : pred[2,1,8]
    """
    positions, keys = op.operands
    held = keys.producer("key_positions")
    if held is None:
        return no_match("its slots are not those of plain rows", keys, depth=0)
    shape = op.result.shape
    slots = b.iota(s32, shape, 2)

    def filled() -> Value:
        return b.compare(slots, b.broadcast_in_dim(held.operands[0], shape, [0]), "LT")

    return [masked_by(b, positions, slots, filled, op.attrs)]
