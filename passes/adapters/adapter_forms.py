"""The form in which low-rank terms are computed, chosen for each of them by its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.passes.adapters.adapter_costs import MASKED, TermSizes, term_costs
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.core.options import choice
from graphgen.passes.core.rule import Replacement
from graphgen.targets import find_target, target_names

AUTO = "auto"
FORMS = (AUTO, MASKED, "gathered")


@register
@dataclass(frozen=True)
class AdapterForms(Pass):
    """Low-rank terms of ``multi-lora`` become two plain products, in one of two forms.

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
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # Sums with zeros of other slots, or without.
    rounding: ClassVar[float] = 2e-2
    form: str = choice(AUTO, FORMS)
    target: str = choice("cpu", target_names)

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Choose for the terms of every function."""
        for function in list(module.functions.values()):
            rewriter.apply_rules(function, (self._rule(rewriter, function.name),))

    def _rule(self, rewriter: Rewriter, program: str) -> Rule:
        @rule("dot_general")
        def choose_form(op: Op, b: Builder) -> Sequence[Value] | Replacement | NoMatch:
            """Two products of a term in the form that costs less."""
            term = _term(op)
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


@dataclass(frozen=True, slots=True)
class _Term:
    """One low-rank term.

    Attributes:
        op: the second product, with B [slots, ...], whose r is in dimension ``place``.
        low: the first product, of the values [..., in] with A [slots, r, in].
        mask: f32 [..., slots], 1 for the slot of each value.
        ids: s32 [B], the slots of the rows; ``None`` where the values are not [B, ...].
        narrow: converts what is multiplied by B; ``None`` where it has its type already.
        place: see ``op``.
    """

    op: Op
    low: Op
    mask: Value
    ids: Value | None
    narrow: Op | None
    place: int

    @property
    def sizes(self) -> TermSizes:
        """For the cost; all are fixed."""
        slots, rank, inputs = self.low.operands[1].type.dims
        outputs = prod(self.op.operands[1].type.dims) // (slots * rank)
        values = prod(self.mask.type.dims[:-1])
        rows = values if self.ids is None else self.ids.type.dims[0]
        dtype = self.low.operands[1].dtype
        matrices = rank * (inputs + outputs)
        return TermSizes(rows, values, slots, matrices, dtype.name, max(1, dtype.bits // 8))


def _term(op: Op) -> _Term | NoMatch:
    """The term whose second product is ``op``."""
    chosen, lora_b = op.operands
    last = chosen.type.rank - 1
    sides = op.attrs.integers("lhs_contracting_dims"), op.attrs.integers("rhs_contracting_dims")
    if sides[0] != (last - 1, last) or len(sides[1]) != 2 or sides[1][0] != 0:
        return NoMatch("it does not sum over slots and low ranks")
    narrow = chosen.producer("convert")
    product = (narrow.operands[0] if narrow is not None else chosen).producer("multiply")
    if product is None or lora_b.type.rank != 3:
        return no_match("what it reads is not masked", chosen)
    low, spread = (value.op for value in product.operands)
    if low is None or low.name != "dot_general" or spread is None:
        return no_match("a collective or another op is between its products", chosen, depth=2)
    if spread.name != "broadcast_in_dim" or low.operands[1].type.rank != 3:
        return no_match("what it reads is not masked by slots", chosen, depth=3)
    if low.attrs.integers("rhs_contracting_dims") != (2,):
        return no_match("the first product is not with A", low.operands[1], depth=4)
    mask = spread.operands[0]
    return _Term(op, low, mask, _ids_of(mask, low.operands[0]), narrow, sides[1][1])


def _ids_of(mask: Value, x: Value) -> Value | None:
    """The slots of the rows that a mask is made of, if they are the rows of ``x``."""
    one = mask.producer("convert")
    equal = one.operands[0].producer("compare") if one is not None else None
    spread = equal.operands[0].producer("broadcast_in_dim") if equal is not None else None
    if spread is None or spread.attrs.integers("dimensions") != (0,):
        return None
    ids = spread.operands[0]
    return ids if ids.type.rank == 1 and ids.shape[0] == x.shape[0] else None


def _masked(b: Builder, term: _Term) -> Value:
    """Two products with the matrices of all slots, one after the other along one dimension."""
    x, lora_a = term.low.operands
    slots, rank, inputs = lora_a.type.dims
    (depth,) = term.low.attrs.integers("lhs_contracting_dims")
    low = b.dot_general(
        x, b.reshape(lora_a, (slots * rank, inputs)), ([depth], [1]), dtype=term.low.result.dtype
    )
    lead = term.mask.shape[:-1]
    wide = b.broadcast_in_dim(term.mask, (*lead, slots, rank), list(range(len(lead) + 1)))
    chosen = _narrowed(b, term, low * b.reshape(wide, low.shape))
    turned = _turned(b, term)
    rows = b.reshape(turned, (slots * rank, turned.shape[2]))
    return b.dot_general(chosen, rows, ([len(lead)], [0]), dtype=term.op.result.dtype)


def _gathered(b: Builder, term: _Term) -> Value:
    """Two products with the matrices of each row's slot, of zeros for a row without one."""
    assert term.ids is not None
    x, lora_a = term.low.operands
    (depth,) = term.low.attrs.integers("lhs_contracting_dims")
    own = [b.take(value, term.ids, 0) for value in (lora_a, _turned(b, term))]
    low = b.dot_general(x, own[0], ([depth], [2]), ([0], [0]), dtype=term.low.result.dtype)
    chosen = _narrowed(b, term, low)
    sides = [chosen.type.rank - 1], [1]
    return b.dot_general(chosen, own[1], sides, ([0], [0]), dtype=term.op.result.dtype)


def _turned(b: Builder, term: _Term) -> Value:
    """B as [slots, r, out], which all programs read."""
    lora_b = term.op.operands[1]
    return lora_b if term.place == 1 else b.transpose(lora_b, (0, 2, 1))


def _narrowed(b: Builder, term: _Term, low: Value) -> Value:
    return low if term.narrow is None else b.convert(low, term.narrow.result.dtype)
