"""The form in which experts are computed, chosen for each program by its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from graphgen.compile_config import DISPATCH_AUTO, EXPERT_DISPATCH
from graphgen.composites.decomposition_registry import Decomposition
from graphgen.composites.mixture_of_experts import every_expert
from graphgen.ir import Function, Module, Op
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.core.options import choice
from graphgen.passes.experts.form_costs import MixtureSizes, form_costs, rates_of
from graphgen.passes.experts.selective_form import chosen_experts
from graphgen.passes.quantize.scale_products import scale_products
from graphgen.targets import find_target, target_names

FORMS: Mapping[str, Decomposition] = {"all": every_expert, "selective": chosen_experts}


@register
@dataclass(frozen=True)
class DispatchExperts(Pass):
    """Each ``experts`` becomes simple ops in one of several forms, which all compute the same.

    ``all`` computes every expert on every token and keeps what a token has chosen. ``selective``
    gathers the matrices of the chosen experts for each token. ``auto`` takes the form that costs
    the target the least: see :class:`graphgen.passes.experts.form_costs.FormCost`.

    Products with quantized weights are scaled after they are summed, by the scales of the chosen
    experts; where a scale is of a group of inputs, what is chosen is widened.

    Options:
        form: one for all, or ``auto``.
        target: what the programs will run on.

    Given:
        module @m level=canonical {
          input %x : f32[1,4]
          input %i : s32[1,2]
          input %w : f32[1,2]
          weight %gate : f32[3,2,4]
          weight %up : f32[3,2,4]
          weight %down : f32[3,4,2]
          output %y : f32[1,4]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %i : s32[1,2]
          arg %w : f32[1,2]
          arg %gate : f32[3,2,4]
          arg %up : f32[3,2,4]
          arg %down : f32[3,4,2]
          %y = experts(%x, %i, %w, %gate, %up, %down) activation=relu dtype=f32 : f32[1,4]
          return y = %y
        }

    Result (``dispatch-experts{form=selective}``):
        module @m level=canonical {
          input %x : f32[1,4]
          input %i : s32[1,2]
          input %w : f32[1,2]
          weight %gate : f32[3,2,4]
          weight %up : f32[3,2,4]
          weight %down : f32[3,4,2]
          output %y : f32[1,4]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %i : s32[1,2]
          arg %w : f32[1,2]
          arg %gate : f32[3,2,4]
          arg %up : f32[3,2,4]
          arg %down : f32[3,4,2]
          %0 = constant() value=s32[](0) : s32[]
          %1 = broadcast_in_dim(%0) shape=[1,2] : s32[1,2]
          %2 = constant() value=s32[](3) : s32[]
          %3 = broadcast_in_dim(%2) shape=[1,2] : s32[1,2]
          %4 = compare(%i, %1) direction=GE : pred[1,2]
          %5 = compare(%i, %3) direction=LT : pred[1,2]
          %6 = and(%4, %5) : pred[1,2]
          %7 = constant() value=s32[](0) : s32[]
          %8 = broadcast_in_dim(%7) shape=[1,2] : s32[1,2]
          %9 = constant() value=s32[](2) : s32[]
          %10 = broadcast_in_dim(%9) shape=[1,2] : s32[1,2]
          %11 = maximum(%i, %8) : s32[1,2]
          %12 = minimum(%11, %10) : s32[1,2]
          %13 = gather(%gate, %12) offset_dims=[2,3] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=2 slice_sizes=[1,2,4] : f32[1,2,2,4]
          %14 = dot_general(%x, %13) lhs_contracting_dims=[1] rhs_contracting_dims=[3] \
lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[1,2,2]
          %15 = gather(%up, %12) offset_dims=[2,3] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=2 slice_sizes=[1,2,4] : f32[1,2,2,4]
          %16 = dot_general(%x, %15) lhs_contracting_dims=[1] rhs_contracting_dims=[3] \
lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[1,2,2]
          %17 = constant() value=f32[](0.0) : f32[]
          %18 = broadcast_in_dim(%17) shape=[1,2,2] : f32[1,2,2]
          %19 = maximum(%14, %18) : f32[1,2,2]
          %20 = multiply(%19, %16) : f32[1,2,2]
          %21 = gather(%down, %12) offset_dims=[2,3] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=2 slice_sizes=[1,4,2] : f32[1,2,4,2]
          %22 = dot_general(%20, %21) lhs_contracting_dims=[2] rhs_contracting_dims=[3] \
lhs_batch_dims=[0,1] rhs_batch_dims=[0,1] dtype=f32 : f32[1,2,4]
          %23 = broadcast_in_dim(%w) shape=[1,2,4] dimensions=[0,1] : f32[1,2,4]
          %24 = multiply(%22, %23) : f32[1,2,4]
          %25 = broadcast_in_dim(%6) shape=[1,2,4] dimensions=[0,1] : pred[1,2,4]
          %26 = constant() value=f32[](0.0) : f32[]
          %27 = broadcast_in_dim(%26) shape=[1,2,4] : f32[1,2,4]
          %28 = select(%25, %24, %27) : f32[1,2,4]
          %y = reduce(%28) dimensions=[1] kind=add : f32[1,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "dispatch-experts"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # The results of a token's experts are summed in another order.
    rounding: ClassVar[float] = 2e-2
    form: str = choice(DISPATCH_AUTO, EXPERT_DISPATCH)
    target: str = choice("cpu", target_names)

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The mixtures of every function."""
        for function in module.functions.values():
            mixtures = [op for op in function.block if op.name == "experts"]
            for op in mixtures:
                if rewriter.exhausted:
                    return
                self._dispatch(function, op, rewriter)
            if mixtures:
                # The products of quantized weights exist only now.
                scale_products(function, rewriter)

    def _dispatch(self, function: Function, op: Op, rewriter: Rewriter) -> None:
        sizes = MixtureSizes.of(op)
        rates = rates_of(find_target(self.target), op.operands[3].dtype.name)
        costs = form_costs(sizes)
        shown = {name: cost.text(rates) for name, cost in costs.items()}
        form = self.form
        if form == DISPATCH_AUTO:
            form = min(costs, key=lambda name: costs[name].seconds(rates))
        for other in FORMS:
            if other != form:
                rewriter.decline(function, other, op, _refusal(self.form, form, shown, other))
        if rewriter.leaves_out(function, op, form):
            return
        with rewriter.before(function, op) as b:
            values = FORMS[form](b, op.operands, op.attrs)
        rewriter.replace(function, op, values, form, gain=shown[form])
        numbers = ", ".join(f"{name} {text}" for name, text in shown.items())
        rewriter.remark(f"@{function.name}: {_named(sizes)}: {form}; {numbers}")


def _named(sizes: MixtureSizes) -> str:
    return f"{sizes.tokens} tokens, {sizes.chosen} of {sizes.experts} experts"


def _refusal(wanted: str, form: str, shown: Mapping[str, str], other: str) -> NoMatch:
    """Why a form was not taken."""
    if wanted != DISPATCH_AUTO:
        return no_match(f"form={wanted} was asked for")
    return no_match(f"it takes {shown[other]}, {form} takes {shown[form]}")
