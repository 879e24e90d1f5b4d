"""The form in which low-rank terms are computed, chosen for each of them by its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.ir import Module, Op, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, register, rule
from graphgen.passes.core.rule import Replacement
from graphgen.passes.lora.low_rank_term import (
    MASKED,
    LowRankTerm,
    gathered,
    match_term,
    narrowed,
    term_costs,
    turned,
)
from graphgen.targets import find_target, target_names

AUTO = "auto"
FORMS = (AUTO, MASKED, "gathered")


@register
@dataclass(frozen=True)
class AdapterForms(Pass):
    """Lower the low-rank terms of ``multi-lora`` to two plain products, in one of two forms.

    ``masked`` multiplies by the matrices of all slots side by side, and keeps what is of the slot
    of each row in between: one product for all rows, as for a batch of tokens with one adapter or
    rows with as many adapters as there are slots. ``gathered`` takes the matrices of each row's
    slot: nothing is computed in vain, as in the prefill of a long prompt, where masked products
    would be ``slots`` times as many. ``auto`` takes what costs the target less. ``transpose`` of B
    is part of the preparation of adapters, which ``lift-weights`` moves out.

    Options:
        form: one for all, or ``auto``.
        target: what the programs will run on.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          output %y : f32[2,6]
          slotted %q.lora_A : f32[3,2,4]
          slotted %q.lora_B : f32[3,6,2]
          input %adapter_ids : s32[2]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %q.lora_A : f32[3,2,4]
          arg %q.lora_B : f32[3,6,2]
          arg %adapter_ids : s32[2]
          %1 = dot_general(%x, %q.lora_A) lhs_contracting_dims=[1] rhs_contracting_dims=[2] \
dtype=f32 : f32[2,3,2]
          %2 = broadcast_in_dim(%adapter_ids) shape=[2,3] dimensions=[0] : s32[2,3]
          %3 = iota() dtype=s32 shape=[2,3] dimension=1 : s32[2,3]
          %4 = compare(%2, %3) direction=EQ : pred[2,3]
          %5 = convert(%4) dtype=f32 : f32[2,3]
          %6 = broadcast_in_dim(%5) shape=[2,3,2] dimensions=[0,1] : f32[2,3,2]
          %7 = multiply(%1, %6) : f32[2,3,2]
          %y = dot_general(%7, %q.lora_B) lhs_contracting_dims=[1,2] rhs_contracting_dims=[0,2] \
dtype=f32 : f32[2,6]
          return y = %y
        }

    Result (``adapter-forms{form=gathered}``, followed by ``dce``):
        module @m level=canonical {
          input %x : f32[2,4]
          output %y : f32[2,6]
          slotted %q.lora_A : f32[3,2,4]
          slotted %q.lora_B : f32[3,6,2]
          input %adapter_ids : s32[2]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %q.lora_A : f32[3,2,4]
          arg %q.lora_B : f32[3,6,2]
          arg %adapter_ids : s32[2]
          %0 = transpose(%q.lora_B) permutation=[0,2,1] : f32[3,2,6]
          %1 = take(%q.lora_A, %adapter_ids) dimension=0 : f32[2,2,4]
          %2 = take(%0, %adapter_ids) dimension=0 : f32[2,2,6]
          %3 = dot_general(%x, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[2] \
lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[2,2]
          %y = dot_general(%3, %2) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[2,6]
          return y = %y
        }
    """

    name: ClassVar[str] = "adapter-forms"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # Sums with zeros of other slots, or without.
    rounding: ClassVar[float] = 2e-2
    form: str = option(words(*FORMS), AUTO)
    target: str = option(words(target_names), "cpu")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Choose for the terms of every function."""
        for function in list(module.functions.values()):
            rewriter.apply_rules(function, (self._rule(rewriter, function.name),))

    def _rule(self, rewriter: Rewriter, program: str) -> Rule:
        @rule("dot_general")
        def choose_form(op: Op, b: Builder) -> Sequence[Value] | Replacement | NoMatch:
            """Two products of a term in the form that costs less."""
            term = match_term(op)
            if isinstance(term, NoMatch):
                return term
            costs = term_costs(term.sizes, find_target(self.target))
            chosen = min(
                (cost for cost in costs if self.form in (AUTO, cost.form)),
                key=lambda cost: cost.seconds,
            )
            masked = chosen.form == MASKED or term.ids is None
            value = _masked(b, term) if masked else _gathered(b, term)
            text = ", ".join([cost.text for cost in costs])
            form = MASKED if masked else chosen.form
            rewriter.remark(f"@{program}: {term.sizes.text}: {form}; {text}")
            return Replacement([b.convert(value, op.result.dtype)], gain=chosen.text)

        return choose_form


def _masked(b: Builder, term: LowRankTerm) -> Value:
    """Two products with the matrices of all slots, one after the other along one dimension."""
    x, lora_a = term.low.operands
    slots, rank, inputs = lora_a.type.dims
    (depth,) = term.low.attrs.integers("lhs_contracting_dims")
    low = b.dot_general(
        x, b.reshape(lora_a, (slots * rank, inputs)), ([depth], [1]), dtype=term.low.result.dtype
    )
    lead = term.mask.shape[:-1]
    wide = b.broadcast_in_dim(term.mask, (*lead, slots, rank), list(range(len(lead) + 1)))
    chosen = narrowed(b, term, low * b.reshape(wide, low.shape))
    columns = turned(b, term)
    rows = b.reshape(columns, (slots * rank, columns.shape[2]))
    return b.dot_general(chosen, rows, ([len(lead)], [0]), dtype=term.op.result.dtype)


def _gathered(b: Builder, term: LowRankTerm) -> Value:
    """Two products with the matrices of each row's slot, of zeros for a row without one."""
    assert term.ids is not None
    x, lora_a = term.low.operands
    lora_b = turned(b, term)
    own = b.take(lora_a, term.ids, 0), b.take(lora_b, term.ids, 0)
    return gathered(b, x, own, term)
