"""Pass the rank as an input, for a compiler without an instruction for the rank number."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import RANK, Op, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.ops.external import gives_rank, shown_name
from graphgen.passes.core import NoMatch, no_match, rule


@rule("hlo.opaque")
def rank_as_input(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Replace rank instructions by the input ``rank``, an s32[1] with each rank's own number.

    AWS's libraries pass the rank like this; neuronx-cc has neither instruction.

    Given:
        arg %x : u32[4]
        %i = hlo.opaque() opcode="replica-id" results=[u32[]] : u32[]
        %b = broadcast_in_dim(%i) shape=[4] : u32[4]
        %y = add(%x, %b) : u32[4]

    Result:
        arg %x : u32[4]
        arg %rank : s32[1]
        %0 = reshape(%rank) shape=[] : s32[]
        %i = convert(%0) dtype=u32 : u32[]
        %b = broadcast_in_dim(%i) shape=[4] : u32[4]
        %y = add(%x, %b) : u32[4]
    """
    if not gives_rank(op):
        return no_match(f"{shown_name(op)} does not ask for the rank")
    rank = rank_of(b)
    if rank is None:
        return no_match(f"the input called {RANK} is something else", depth=2)
    return [b.convert(b.reshape(rank, ()), op.result.dtype)]


def rank_of(b: Builder) -> Value | None:
    """Get or add the rank input; ``None`` if another value has its name."""
    rank = b.function.arg(RANK)
    if rank is None:
        return b.function.block.add_arg(tensor(s32, (1,)), RANK)
    return rank if rank.type is tensor(s32, (1,)) else None
