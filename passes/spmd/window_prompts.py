"""Windowed attention of ranks that share prompts: each gets the slots of its windows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import CP_AUTO, CP_FORMS
from graphgen.ir import PROMPT_PHASES, Function, Module, Op, Value
from graphgen.passes.attention.tile_costs import TOKENS
from graphgen.passes.attention.window_slots import WindowedAttention, slots_from, windowed
from graphgen.passes.core import Pass, Rewriter, no_match, register
from graphgen.passes.sharding.logical_axes import model_axes
from graphgen.passes.sharding.prompt_attention import RING, PromptAttention, leaves_out_masked
from graphgen.passes.sharding.rank_axes import RankAxes
from graphgen.passes.sharding.ring_layout import in_order, is_balanced
from graphgen.targets import target_names


@register
@dataclass(frozen=True)
class WindowPrompts(Pass):
    """Give the tokens of each rank that shares a prompt the slots that their windows reach.

    Blocks of tokens become rows of attention, as many as ranks; twice as many where tokens are in
    the balanced order, and more where a program computes what masks forbid. Of T tokens and a
    window of W slots a block reads T + W - 1 slots, from one on that its positions say. ``shard``
    divides the rows over the ranks that share the prompt, so that an exchange brings each of them
    those slots alone, where a ring passes on the slots of all ranks, and a gather brings all.

    Options:
        tp: ranks.
        cp: of them, those that share a prompt.
        dp: groups of ranks with rows of their own; with more than one, nothing is changed.
        cp_form: of ``shard``; where it costs less than ``auto`` chooses, or for a ``ring``.
        target: what the programs will run on.

    Given:
        module @m level=canonical {
          input %x : f32[1,4,2,4]
          input %positions : s32[1,4]
          input %lengths : s32[1]
          input %seq_ids : s32[1]
          state %k : f32[1,8,2,4]
          output %y : f32[1,4,2,4]
        }

        func @prefill phase=prefill {
          arg %k : f32[1,8,2,4]
          arg %x : f32[1,4,2,4]
          arg %positions : s32[1,4]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          %p = key_positions(%lengths) attended=8 : s32[1,8]
          %m = attention_mask(%positions, %p) window=2 : pred[1,4,8]
          %0 = kv_update(%k, %x, %seq_ids, %positions) : f32[1,8,2,4]
          %1 = cache_read(%0, %seq_ids) attended=8 : f32[1,8,2,4]
          %y = attention(%x, %1, %1, %m) scale=0.5 : f32[1,4,2,4]
          return k = %0
          return y = %y
        }

    Result (``window-prompts{cp_form=ring},cse,dce``):
        module @m level=canonical {
          input %x : f32[1,4,2,4]
          input %positions : s32[1,4]
          input %lengths : s32[1]
          input %seq_ids : s32[1]
          state %k : f32[1,8,2,4]
          output %y : f32[1,4,2,4]
        }

        func @prefill phase=prefill {
          arg %k : f32[1,8,2,4]
          arg %x : f32[1,4,2,4]
          arg %positions : s32[1,4]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          %p = key_positions(%lengths) attended=8 : s32[1,8]
          %0 = kv_update(%k, %x, %seq_ids, %positions) : f32[1,8,2,4]
          %1 = cache_read(%0, %seq_ids) attended=8 : f32[1,8,2,4]
          %2 = reshape(%positions) shape=[1,2,2] : s32[1,2,2]
          %3 = transpose(%2) permutation=[1,0,2] : s32[2,1,2]
          %4 = reshape(%3) shape=[2,2] : s32[2,2]
          %5 = constant() value=s32[](0) : s32[]
          %6 = broadcast_in_dim(%5) shape=[2,2] : s32[2,2]
          %7 = constant() value=s32[](8) : s32[]
          %8 = broadcast_in_dim(%7) shape=[2,2] : s32[2,2]
          %9 = compare(%4, %6) direction=GE : pred[2,2]
          %10 = select(%9, %4, %8) : s32[2,2]
          %11 = reduce(%10) dimensions=[1] kind=minimum : s32[2]
          %12 = constant() value=s32[](1) : s32[]
          %13 = broadcast_in_dim(%12) shape=[2] : s32[2]
          %14 = subtract(%11, %13) : s32[2]
          %15 = constant() value=s32[](5) : s32[]
          %16 = clamp(%5, %14, %15) : s32[2]
          %17 = slice(%16) start_indices=[0] limit_indices=[1] : s32[1]
          %18 = reshape(%17) shape=[] : s32[]
          %19 = slice(%16) start_indices=[1] limit_indices=[2] : s32[1]
          %20 = reshape(%19) shape=[] : s32[]
          %21 = dynamic_slice(%1, %5, %18, %5, %5) slice_sizes=[1,3,2,4] : f32[1,3,2,4]
          %22 = dynamic_slice(%1, %5, %20, %5, %5) slice_sizes=[1,3,2,4] : f32[1,3,2,4]
          %23 = concatenate(%21, %22) dimension=0 : f32[2,3,2,4]
          %24 = dynamic_slice(%p, %5, %18) slice_sizes=[1,3] : s32[1,3]
          %25 = dynamic_slice(%p, %5, %20) slice_sizes=[1,3] : s32[1,3]
          %26 = concatenate(%24, %25) dimension=0 : s32[2,3]
          %27 = concatenate(%23, %23) dimension=3 : f32[2,3,2,8]
          %28 = slice(%27) start_indices=[0,0,0,0] limit_indices=[2,3,2,4] : f32[2,3,2,4]
          %29 = slice(%27) start_indices=[0,0,0,4] limit_indices=[2,3,2,8] : f32[2,3,2,4]
          %30 = attention_mask(%4, %26) window=2 : pred[2,2,3]
          %31 = reshape(%x) shape=[1,2,2,2,4] : f32[1,2,2,2,4]
          %32 = transpose(%31) permutation=[1,0,2,3,4] : f32[2,1,2,2,4]
          %33 = reshape(%32) shape=[2,2,2,4] : f32[2,2,2,4]
          %34 = attention(%33, %28, %29, %30) scale=0.5 : f32[2,2,2,4]
          %35 = reshape(%34) shape=[2,1,2,2,4] : f32[2,1,2,2,4]
          %36 = transpose(%35) permutation=[1,0,2,3,4] : f32[1,2,2,2,4]
          %y = reshape(%36) shape=[1,4,2,4] : f32[1,4,2,4]
          return k = %0
          return y = %y
        }
    """

    name: ClassVar[str] = "window-prompts"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "raw-weights")
    # Products are of other shapes.
    rounding: ClassVar[float] = 2e-2
    tp: int = 2
    cp: int = 2
    dp: int = 1
    cp_form: str = option(words(*CP_FORMS), CP_AUTO)
    target: str = option(words(target_names), "cpu")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Choose and rewrite, attention by attention."""
        if self.cp == 1 or self.dp > 1 or self.cp_form not in (CP_AUTO, RING):
            return
        skips = leaves_out_masked(self.target)
        ranks = RankAxes(self.tp, self.cp, self.dp)
        forms = PromptAttention(module, model_axes(module), ranks, self.cp_form, skips=skips)
        for function in list(module.programs()):
            if function.phase not in PROMPT_PHASES:
                continue
            for op in [op for op in function.block if op.name == "attention"]:
                if rewriter.exhausted:
                    return
                self._attention(function, op, forms, rewriter)

    def _attention(
        self, function: Function, op: Op, forms: PromptAttention, rewriter: Rewriter
    ) -> None:
        found = windowed(op, in_order)
        ways = forms.forms(op) if found is not None else ()
        if found is None or not ways:
            return
        if is_balanced(op, self.cp) and any(in_order(x) is x for x in op.operands[1:3]):
            why = "keys and values are computed of slots in the balanced order"
            rewriter.decline(function, "window", op, no_match(why, op.operands[1]))
            return
        blocks, tokens = self._blocks(op, found, forms), op.operands[0].type.dims[1]
        count = found.count(tokens // blocks)
        if tokens % blocks or count == found.slots:
            rewriter.decline(function, "window", op, no_match("its blocks read all slots"))
            return
        other, made = forms.chosen(op, ways), forms.of_windows(op, blocks, count)
        if made.cost >= other.cost and other.name != RING:
            why = f"{made.text} costs {made.cost:,} bytes a rank, {other.text} {other.cost:,}"
            rewriter.decline(function, "window", op, no_match(why))
        elif not rewriter.declines(function, op, "window"):
            with rewriter.before(function, op) as b:
                value = _by_blocks(b, op, found, blocks)
            rewriter.replace(function, op, [value], "window", gain=f"{made.text}, not {other.text}")

    def _blocks(self, op: Op, found: WindowedAttention, forms: PromptAttention) -> int:
        """The number of blocks: more than ranks where programs compute what masks forbid."""
        blocks = self.cp * (2 if is_balanced(op, self.cp) else 1)
        tokens, least = op.operands[0].type.dims[1], 2 * max(TOKENS, found.reach)
        while not forms.skips and tokens % (2 * blocks) == 0 and tokens // (2 * blocks) >= least:
            blocks *= 2
        return blocks


def _by_blocks(b: Builder, op: Op, found: WindowedAttention, blocks: int) -> Value:
    """The attention with blocks of tokens as rows."""
    query = op.operands[0]
    rows, tokens, *_ = query.type.dims
    count = found.count(tokens // blocks)
    positions = _rows_of_blocks(b, found.positions, blocks)
    firsts = found.firsts(b, positions, count)
    # Blocks first, so that ranks have neighbors.
    keys, values, held = [
        b.concatenate(
            [
                slots_from(b, in_order(value), firsts[at * rows : (at + 1) * rows], count)
                for at in range(blocks)
            ],
            0,
        )
        for value in (*op.operands[1:3], found.mask.operands[1])
    ]
    if keys.dtype is values.dtype:
        # They are exchanged as one.
        width, both = keys.type.dims[3], b.concatenate([keys, values], 3)
        keys, values = [
            b.slice_dim(both, 3, *ends) for ends in ((0, width), (width, both.type.dims[3]))
        ]
    mask = b.emit("attention_mask", (positions, held), dict(found.mask.attrs)).result
    given = (_rows_of_blocks(b, query, blocks), keys, values, mask, *op.operands[4:])
    made = b.emit("attention", given, dict(op.attrs)).result
    size = (blocks, rows, tokens // blocks, *made.shape[2:])
    return b.reshape(_turned(b, b.reshape(made, size)), op.result.shape)


def _rows_of_blocks(b: Builder, value: Value, blocks: int) -> Value:
    """[B,S,...] as [n B,S/n,...]."""
    rows, tokens, *rest = value.type.dims
    parts = _turned(b, b.reshape(value, (rows, blocks, tokens // blocks, *rest)))
    return b.reshape(parts, (blocks * rows, tokens // blocks, *rest))


def _turned(b: Builder, value: Value) -> Value:
    """The first two dimensions in the other order."""
    order: Sequence[int] = [1, 0, *range(2, value.type.rank)]
    return b.transpose(value, order)
