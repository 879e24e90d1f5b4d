"""Slots of caches are dealt out over stripes, which ranks then hold: flash decoding's layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Entry, Function, Module, Role, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, register
from graphgen.passes.heads.slot_groups import slot_ranks
from graphgen.passes.paging.page_programs import find_state
from graphgen.passes.striping.carried_slots import StripedProgram
from graphgen.passes.striping.striped_slots import StripedSlots
from graphgen.passes.weights.layout_change import repack


@register
@dataclass(frozen=True)
class StripeCache(Pass):
    """Stripe the slots of cache rows: slot s goes to stripe s mod n, place s div n.

    ``partition`` then gives each of n ranks one stripe, so that ranks hold about as many filled
    slots as any other at every length. Reads take the first slots of each stripe, and attention
    goes over slots in that order: masks, distances and biases are reordered, scores are summed
    alike. Slots of rings are dealt out as those of plain rows. Rows are filled up to a multiple of
    n slots, which are never read.

    Options:
        stripes: n; 0 for as many as hold each key-value head once, of ``tp`` ranks.
        tp: ranks that stripes are made for; 1 for stripes without regard to heads.

    Given:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %positions : s32[2,1]
          input %lengths : s32[2]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4]
          output %y : f32[2,1,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          %p = key_positions(%lengths) attended=8 : s32[2,8]
          %m = attention_mask(%positions, %p) : pred[2,1,8]
          %0 = kv_update(%k, %new, %seq_ids, %positions) : f32[2,8,1,4]
          %1 = cache_read(%0, %seq_ids) attended=8 : f32[2,8,1,4]
          %y = attention(%new, %1, %1, %m) scale=0.5 : f32[2,1,1,4]
          return k = %0
          return y = %y
        }

    Result (``stripe-cache{stripes=2},dce``):
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %positions : s32[2,1]
          input %lengths : s32[2]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4] pack=@pack.f32.2x8x1x4.stripes2 \
unpack=@unpack.f32.2x8x1x4.stripes2
          output %y : f32[2,1,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          %p = key_positions(%lengths) attended=8 : s32[2,8]
          %0 = constant() value=s32[](0) : s32[]
          %1 = broadcast_in_dim(%0) shape=[2,1] : s32[2,1]
          %2 = compare(%positions, %1) direction=GE : pred[2,1]
          %3 = constant() value=s32[](8) : s32[]
          %4 = broadcast_in_dim(%3) shape=[2,1] : s32[2,1]
          %5 = compare(%positions, %4) direction=LT : pred[2,1]
          %6 = and(%2, %5) : pred[2,1]
          %7 = constant() value=s32[](1) : s32[]
          %8 = broadcast_in_dim(%7) shape=[2,1] : s32[2,1]
          %9 = and(%positions, %8) : s32[2,1]
          %10 = constant() value=s32[](4) : s32[]
          %11 = broadcast_in_dim(%10) shape=[2,1] : s32[2,1]
          %12 = multiply(%9, %11) : s32[2,1]
          %13 = constant() value=s32[](2) : s32[]
          %14 = broadcast_in_dim(%13) shape=[2,1] : s32[2,1]
          %15 = divide(%positions, %14) : s32[2,1]
          %16 = add(%12, %15) : s32[2,1]
          %17 = constant() value=s32[](-1) : s32[]
          %18 = broadcast_in_dim(%17) shape=[2,1] : s32[2,1]
          %19 = select(%6, %16, %18) : s32[2,1]
          %20 = kv_update(%k, %new, %seq_ids, %19) : f32[2,8,1,4]
          %21 = cache_read(%20, %seq_ids) attended=8 parts=2 : f32[2,8,1,4]
          %22 = reshape(%p) shape=[2,4,2] : s32[2,4,2]
          %23 = transpose(%22) permutation=[0,2,1] : s32[2,2,4]
          %24 = reshape(%23) shape=[2,8] : s32[2,8]
          %25 = attention_mask(%positions, %24) : pred[2,1,8]
          %y = attention(%new, %21, %21, %25) scale=0.5 : f32[2,1,1,4]
          return k = %20
          return y = %y
        }

        func @pack.f32.2x8x1x4.stripes2 {
          arg %whole : f32[2,8,1,4]
          arg %rank : s32[1]
          %0 = reshape(%whole) shape=[2,4,2,1,4] : f32[2,4,2,1,4]
          %1 = transpose(%0) permutation=[0,2,1,3,4] : f32[2,2,4,1,4]
          %2 = reshape(%1) shape=[2,8,1,4] : f32[2,8,1,4]
          return part = %2
        }

        func @unpack.f32.2x8x1x4.stripes2 {
          arg %parts : f32[1,2,8,1,4]
          %0 = reshape(%parts) shape=[1,2,2,4,1,4] : f32[1,2,2,4,1,4]
          %1 = transpose(%0) permutation=[0,1,3,2,4,5] : f32[1,2,4,2,1,4]
          %2 = reshape(%1) shape=[1,2,8,1,4] : f32[1,2,8,1,4]
          %3 = reshape(%2) shape=[2,8,1,4] : f32[2,8,1,4]
          return whole = %3
        }
    """

    name: ClassVar[str] = "stripe-cache"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("specialized",)
    # Scores are the same numbers in another order, and 16-bit types round their sums differently.
    rounding: ClassVar[float] = 2e-2
    stripes: int = 0
    tp: int = 1

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """All caches at once: attention reads keys and values in one order."""
        count = slot_ranks(module, self.tp, self.stripes) if self.tp > 1 else self.stripes
        if count < 2 or rewriter.exhausted:
            return
        rows = [row for row in module.entries(Role.STATE) if _written(module, row)]
        layout, names = StripedSlots(count), frozenset(row.name for row in rows)
        with rewriter.joined():
            for function in module.programs():
                why = StripedProgram(function, rewriter, layout).run(names)
                if why is not None:
                    raise _refused(function, why)
            for row in rows:
                _keep_stripes(module, row, layout)
        # The caches hold other numbers before and after, so that it is a rewrite of the interface.
        rewriter.note(None, f"{count} stripes")
        rewriter.remark(f"{len(rows)} caches are in {count} stripes")


def _written(module: Module, row: Entry) -> bool:
    """True for a cache that programs update (GG0304 where one does something else with it)."""
    found = False
    for function in module.programs():
        state = find_state(function, row)
        if isinstance(state, NoMatch):
            raise _refused(function, state)
        found = found or state is not None
    return found


def _refused(function: Function, why: NoMatch) -> GraphgenError:
    op = why.at.op if why.at is not None else None
    return GraphgenError(
        "GG0304",
        f"stripe-cache: @{function.name}: {why.reason}",
        where=repr(op.loc) if op is not None else "",
        help="leave out flash_decoding (--flash-decoding): ranks then hold whole rows",
    )


def _keep_stripes(module: Module, row: Entry, layout: StripedSlots) -> None:
    """Say in the interface that a state is kept in stripes."""
    slots = row.physical.dims[1]

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return layout.striped(b, part, 1)

    def unpack(b: Builder, parts: Value) -> Value:
        return layout.plain(b, parts, 2, slots)

    physical = layout.physical(row.physical)
    repack(module, row, physical, f"stripes{layout.stripes}", (pack, unpack))
