"""The rank as an input, for a compiler on which no instruction says which rank this is."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import RANK, Op, Value, tensor
from graphgen.ir.dtype import s32
from passes.core import No, no, rule

# Ranks are both here: one program, loaded once a rank.
_ASK = ("replica-id", "partition-id")


@rule("hlo.opaque")
def rank_as_input(op: Op, b: Builder) -> Sequence[Value] | No:
    """What asks for the rank reads the input ``rank``, an s32[1] of each rank's own.

    It is how AWS's libraries tell a program its rank; neuronx-cc knows neither instruction.

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
    opcode = op.attrs.text("opcode")
    if opcode not in _ASK:
        return no(f"{opcode} does not ask for the rank")
    rank = b.function.arg(RANK)
    if rank is not None and rank.type is not tensor(s32, (1,)):
        return no(f"the input called {RANK} is {rank.type.text}", rank)
    if rank is None:
        rank = b.function.block.add_arg(tensor(s32, (1,)), RANK)
    return [b.convert(b.reshape(rank, ()), op.result.dtype)]
