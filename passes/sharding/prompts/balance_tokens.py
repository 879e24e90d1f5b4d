"""Order the tokens of prompts so that the ranks of a ring do equal work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import PROMPT_PHASES, Function, Module, Op
from graphgen.option_words import BALANCE_AUTO, BALANCE_OFF, BALANCE_ON, CP_AUTO, CP_FORMS
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.core.options import choice
from graphgen.passes.sharding.prompt_attention import (
    RING,
    PromptAttention,
    PromptForm,
    leaves_out_masked,
)
from graphgen.passes.sharding.prompts.balanced_tokens import BalancedTokens
from graphgen.passes.sharding.spec.logical_axes import model_axes
from graphgen.passes.sharding.spec.rank_axes import RankAxes
from graphgen.targets import target_names

BALANCE = (BALANCE_AUTO, BALANCE_ON, BALANCE_OFF)


@register
@dataclass(frozen=True)
class BalanceTokens(Pass):
    """Deal out the tokens of prompts so that causal masks leave ranks of a ring equal work.

    Of n ranks, rank i has the blocks i and 2n - 1 - i of 2n blocks of tokens, and of slots: each
    block of keys that comes by is allowed for half of its tokens, where otherwise the last rank
    reads every block and the first one its own. Tokens and positions are dealt out where they come
    in, and outputs of all tokens are put in order again. Masks, rotations, the last token and
    caches follow positions.

    Options:
        tp: ranks.
        cp: of them, those that share a prompt.
        dp: groups of ranks with rows of their own.
        cp_form: of ``shard``, which chooses in the same way.
        balance: ``on``, ``off``, or ``auto`` for what costs least; ``on`` is refused for a program
            whose ops depend on the order of tokens.
        target: what the programs will run on; only loops leave out tiles that a mask forbids.

    Given:
        module @m level=canonical {
          input %x : f32[1,4,2,4]
          input %positions : s32[1,4]
          input %lengths : s32[1]
          input %seq_ids : s32[1]
          state %k : f32[1,4,2,4]
          output %y : f32[1,4,2,4]
        }

        func @prefill phase=prefill {
          arg %k : f32[1,4,2,4]
          arg %x : f32[1,4,2,4]
          arg %positions : s32[1,4]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          %p = key_positions(%lengths) attended=4 : s32[1,4]
          %m = attention_mask(%positions, %p) : pred[1,4,4]
          %0 = kv_update(%k, %x, %seq_ids, %positions) : f32[1,4,2,4]
          %1 = cache_read(%0, %seq_ids) attended=4 : f32[1,4,2,4]
          %y = attention(%x, %1, %1, %m) scale=0.5 : f32[1,4,2,4]
          return k = %0
          return y = %y
        }

    Result (``balance-tokens{cp_form=ring,balance=on},cse,dce``):
        module @m level=canonical {
          input %x : f32[1,4,2,4]
          input %positions : s32[1,4]
          input %lengths : s32[1]
          input %seq_ids : s32[1]
          state %k : f32[1,4,2,4]
          output %y : f32[1,4,2,4]
        }

        func @prefill phase=prefill {
          arg %k : f32[1,4,2,4]
          arg %x : f32[1,4,2,4]
          arg %positions : s32[1,4]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          %0 = constant() value=s32[4](0,3,1,2) : s32[4]
          %1 = take(%positions, %0) dimension=1 : s32[1,4]
          %2 = take(%x, %0) dimension=1 : f32[1,4,2,4]
          %p = key_positions(%lengths) attended=4 : s32[1,4]
          %3 = kv_update(%k, %2, %seq_ids, %1) : f32[1,4,2,4]
          %4 = cache_read(%3, %seq_ids) attended=4 : f32[1,4,2,4]
          %5 = take(%4, %0) dimension=1 : f32[1,4,2,4]
          %6 = take(%p, %0) dimension=1 : s32[1,4]
          %7 = attention_mask(%1, %6) : pred[1,4,4]
          %y = attention(%2, %5, %5, %7) scale=0.5 : f32[1,4,2,4]
          %8 = constant() value=s32[4](0,2,3,1) : s32[4]
          %9 = take(%y, %8) dimension=1 : f32[1,4,2,4]
          return k = %3
          return y = %9
        }
    """

    name: ClassVar[str] = "balance-tokens"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "raw-weights")
    # Sums over slots are taken in another order.
    rounding: ClassVar[float] = 2e-2
    tp: int = 2
    cp: int = 2
    dp: int = 1
    cp_form: str = choice(CP_AUTO, CP_FORMS)
    balance: str = choice(BALANCE_AUTO, BALANCE)
    target: str = choice("cpu", target_names)

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Choose and rewrite, program by program."""
        if self.cp == 1 or self.balance == BALANCE_OFF or self.cp_form not in (CP_AUTO, RING):
            return
        ranks = RankAxes(self.tp, self.cp, self.dp)
        form = RING if self.balance == BALANCE_ON else self.cp_form
        skips = leaves_out_masked(self.target)
        forms = PromptAttention(module, model_axes(module), ranks, form, skips=skips)
        for function in list(module.programs()):
            if function.phase in PROMPT_PHASES and not rewriter.exhausted:
                self._program(module, function, forms, rewriter)

    def _program(
        self, module: Module, function: Function, forms: PromptAttention, rewriter: Rewriter
    ) -> None:
        every = [op for op in function.block if op.name == "attention"]
        found = {op: forms.forms(op) for op in every}
        if not any(found.values()):
            # Its tokens do not divide: no rank shares them.
            return
        tokens = BalancedTokens(module, function, forms.axes, forms.ring_ranks)
        why = self._why_in_order(tokens, found, forms)
        if why is not None and self.balance == BALANCE_ON:
            raise _refused(function, why, every[0])
        if why is not None:
            rewriter.decline(function, "balance", every[0], why)
        elif not rewriter.leaves_out(function, every[0], "balance"):
            tokens.run(every, rewriter)
            count = forms.ring_ranks
            rewriter.remark(f"@{function.name}: tokens are dealt out to {count} ranks of a ring")

    def _why_in_order(
        self,
        tokens: BalancedTokens,
        found: Mapping[Op, Sequence[PromptForm]],
        forms: PromptAttention,
    ) -> NoMatch | None:
        """Why the tokens of a program stay in order; ``None`` if they are to be dealt out."""
        rings = {op: way for op, ways in found.items() for way in ways if way.name == RING}
        if len(rings) < len(found):
            apart = next(op for op in found if op not in rings)
            return no_match("its slots do not divide over a ring", apart.operands[1])
        why = tokens.why_not(list(found))
        if why is not None or self.balance == BALANCE_ON:
            return why
        if not forms.skips:
            return no_match(f"programs for {self.target} compute what masks forbid, too", depth=2)
        dealt = sum(forms.with_order(op, way, balanced=True).cost for op, way in rings.items())
        plain = sum(forms.chosen(op, ways).cost for op, ways in found.items())
        if dealt >= plain:
            return no_match(f"it costs {dealt:,} bytes a rank, {plain:,} without", depth=3)
        return None


def _refused(function: Function, why: NoMatch, op: Op) -> GraphgenError:
    at = why.at.op if why.at is not None and why.at.op is not None else op
    return GraphgenError(
        "GG0304",
        f"balance-tokens: tokens of @{function.name} need their order: {why.reason}",
        where=repr(at.loc),
        help="leave out balance=on (cp_balance): ranks of a ring have tokens in order then",
    )
