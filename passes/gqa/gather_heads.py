"""Split a product that several ranks compute alike: each computes a part, then all-gather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import RANK, Function, Module, Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.gqa.sink_gather import result_dims


@register
@dataclass(frozen=True)
class GatherHeads(Pass):
    """Divide a product that several ranks would all compute, and gather its parts among them.

    Of a weight from which neighboring ranks take the same block, each of them multiplies its part;
    the parts of a group lie side by side in the checkpoint. So the weights of key-value heads that
    are there often are held once, at the price of a collective: ``ALL_GATHER_HEADS`` of
    transformers-neuronx.

    Given:
        module @m level=sharded mesh=tp:2 {
          input %x : f32[1,3]
          weight %k : f32[4,3]
          output %y : f32[1,4]
        }

        func @f phase=decode {
          arg %rank : s32[1]
          arg %x : f32[1,3]
          arg %k : f32[4,3]
          %0 = constant() value=s32[2](0,0) : s32[2]
          %1 = reshape(%rank) shape=[] : s32[]
          %2 = dynamic_slice(%0, %1) slice_sizes=[1] : s32[1]
          %3 = take(%k, %2) dimension=0 block=4 : f32[4,3]
          %y = dot_general(%x, %3) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,4]
          return y = %y
        }

    Result (followed by ``dce``):
        module @m level=sharded mesh=tp:2 {
          input %x : f32[1,3]
          weight %k : f32[4,3]
          output %y : f32[1,4]
        }

        func @f phase=decode {
          arg %rank : s32[1]
          arg %x : f32[1,3]
          arg %k : f32[4,3]
          %0 = constant() value=s32[](0) : s32[]
          %1 = reshape(%rank) shape=[] : s32[]
          %2 = constant() value=s32[](2) : s32[]
          %3 = multiply(%1, %2) : s32[]
          %4 = dynamic_slice(%k, %3, %0) slice_sizes=[2,3] : f32[2,3]
          %5 = dot_general(%x, %4) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,2]
          %y = all_gather(%5) dimension=1 replica_groups=[[0,1]] : f32[1,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "gather-heads"
    input_stages: ClassVar[tuple[str, ...]] = ("sharded",)
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    # A narrower product may be summed in another order.
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply the rule to every program."""
        for function in module.programs():
            rewriter.apply_rules(function, (gathering(function, module.ranks),))


def gathering(function: Function, ranks: int) -> Rule:
    """The rule for one program on ``ranks`` ranks."""

    @rule("dot_general")
    def gather_parts(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``x @ block = all_gather(x @ part of block)`` within the ranks that share the block."""
        rank = function.arg(RANK)
        take = op.operands[1].producer("take")
        if take is None or rank is None:
            return no_match("the weight is not a take", op.operands[1])
        dim, block = take.attrs.integer("dimension"), take.attrs.integer("block")
        if [(1, dim)] not in result_dims(op):
            return no_match("the blocks are summed over", op.operands[1], depth=2)
        size = _together(take, rank, ranks)
        if isinstance(size, NoMatch):
            return size
        if block % size:
            return no_match(
                f"{size} ranks cannot share a block of {block}", op.operands[1], depth=3
            )
        part = _part(b, take.operands[0], rank, dim, block // size)
        made = b.emit(op.name, (op.operands[0], part), dict(op.attrs)).result
        groups = tuple(tuple(range(at, at + size)) for at in range(0, ranks, size))
        axis = result_dims(op).index([(1, dim)])
        return [b.op("all_gather", made, dimension=axis, replica_groups=groups)]

    return gather_parts


def _together(take: Op, rank: Value, ranks: int) -> int | NoMatch:
    """The number of neighboring ranks that take the same block, equal for all blocks."""
    mine = take.operands[1].producer("dynamic_slice")
    blocks = mine.operands[0].producer("constant") if mine is not None else None
    if mine is None or blocks is None:
        return no_match("the block that a rank takes is not known", take.operands[1], depth=4)
    start = mine.operands[1].producer("reshape")
    if start is None or start.operands[0] is not rank or mine.result.shape != (1,):
        return no_match("a rank takes more than one block", mine.result, depth=5)
    source = take.operands[0]
    count = source.shape[take.attrs.integer("dimension")]
    assert isinstance(count, int)
    size, rest = divmod(ranks, count // take.attrs.integer("block"))
    wanted = [number // size for number in range(ranks)] if size else []
    if rest or size < 2 or list(blocks.attrs.literal("value").values()) != wanted:
        return no_match("ranks do not take the same blocks in equal groups", source, depth=6)
    return size


def _part(b: Builder, weight: Value, rank: Value, dim: int, size: int) -> Value:
    """The part of ``weight`` for this rank: parts of a group are neighbors, and so are groups."""
    zero = b.literal(0, s32)
    start = b.binary("multiply", b.reshape(rank, ()), size)
    sizes = [size if at == dim else extent for at, extent in enumerate(weight.shape)]
    return b.dynamic_slice(
        weight, [start if at == dim else zero for at in range(weight.type.rank)], sizes
    )
