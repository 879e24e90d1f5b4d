"""The form in which experts are computed, chosen for each program by its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from graphgen.build import Builder
from graphgen.composites.experts import ExpertCall, expert_call, experts, result_of
from graphgen.config.fields import option, words
from graphgen.config.option_words import DISPATCH_AUTO, EXPERT_DISPATCH
from graphgen.ir import Attrs, Function, Module, Op, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.experts.block_loop import LoopFunctions, experts_kind
from graphgen.passes.experts.block_products import Compute, gathered, in_place
from graphgen.passes.experts.expert_choices import entries_of, fixed
from graphgen.passes.experts.form_costs import BLOCKS, FormCost, MixtureSizes, form_costs, rates_of
from graphgen.passes.experts.token_blocks import (
    TokenBlocks,
    choice_blocks,
    expert_buffers,
    sorted_blocks,
)
from graphgen.passes.outline.op_templates import OpTemplates
from graphgen.passes.outline.shared_functions import SharedFunctions
from graphgen.passes.quantization.scale_products import scale_products
from graphgen.targets import find_target, target_names


def dispatched(
    b: Builder,
    operands: Sequence[Value],
    attrs: Attrs,
    form: str,
    block: int,
    compute: Compute | None = None,
) -> Value:
    """A mixture in simple ops.

    Args:
        b: where to build.
        operands: of the op.
        attrs: of the op.
        form: all, selective, capacity or blockwise.
        block: places of a block, for ``blockwise``.
        compute: the MLPs of blocks; by default all at once.
    """
    if form == "all":
        return experts(b, operands, attrs)[0]
    call, at_once = expert_call(b, operands, attrs), gathered
    if form == "selective":
        blocks = choice_blocks(b, call)
    elif form == "blockwise":
        blocks = sorted_blocks(b, call, block)
    else:
        blocks, at_once = expert_buffers(b, call, most_tokens(call)), in_place
    made = (compute or at_once)(b, call, blocks)
    return result_of(b, _combined(b, call, blocks, made), operands[0], attrs)


def most_tokens(call: ExpertCall) -> int:
    """The most tokens that an expert computes: its capacity, or all."""
    tokens = fixed(call.x.shape[0])
    return min(tokens, call.capacity) if call.capacity else tokens


def _combined(b: Builder, call: ExpertCall, blocks: TokenBlocks, y: Value) -> Value:
    """The sums f32 [T,H] over the choices of each token of results f32 [N,B,H], or [N+1,B,H]."""
    count, size, width = (fixed(dim) for dim in y.shape)
    shape, places = (*call.indices.shape, width), blocks.places
    ends_with_zeros = count > fixed(blocks.rows.shape[0])
    if ends_with_zeros:
        last = b.full((count - 1) * size, places.type)
        places = b.select(blocks.kept, places, last)
    numbers = b.reshape(places, (fixed(shape[0]) * fixed(shape[1]),))
    found = b.reshape(entries_of(b, b.reshape(y, (count * size, width)), numbers), shape)
    if not call.early:
        none = b.full(0.0, call.weights.type)
        shares = b.select(blocks.kept, call.weights, none)
        found = found * b.broadcast_in_dim(shares, shape, [0, 1])
    if not ends_with_zeros:
        kept = b.broadcast_in_dim(blocks.kept, shape, [0, 1])
        found = b.select(kept, found, b.full(0.0, found.type))
    return b.reduce(found, [1], "add")


@register
@dataclass(frozen=True)
class DispatchExperts(Pass):
    """Lower each ``experts`` to simple ops in one of several equivalent forms.

    ``all`` computes every expert on every token and keeps what a token has chosen. The others
    compute blocks of tokens, each with the matrices of one expert: ``selective`` a block of one
    token for each choice, ``blockwise`` blocks of some of the tokens of an expert, ``capacity`` one
    block for each expert, with places for as many tokens as it may have. ``auto`` takes the form
    that costs the target the least: see :mod:`graphgen.passes.experts.form_costs`. On the CPU
    blocks are computed in a loop, which leaves out those without tokens; on an accelerator all at
    once, with gathered matrices.

    Products with quantized weights are scaled after they are summed, by the scales of the chosen
    experts; where a scale is of a group of inputs, what is chosen is widened.

    Options:
        form: one for all, or ``auto``.
        block: places of a block of ``blockwise``; 0 for what costs the least.
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

    Result (``dispatch-experts{form=all}``):
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
          %0 = iota() dtype=s32 shape=[1,2,3] dimension=2 : s32[1,2,3]
          %1 = broadcast_in_dim(%i) shape=[1,2,3] dimensions=[0,1] : s32[1,2,3]
          %2 = compare(%1, %0) direction=EQ : pred[1,2,3]
          %3 = broadcast_in_dim(%w) shape=[1,2,3] dimensions=[0,1] : f32[1,2,3]
          %4 = constant() value=f32[](0.0) : f32[]
          %5 = broadcast_in_dim(%4) shape=[1,2,3] : f32[1,2,3]
          %6 = select(%2, %3, %5) : f32[1,2,3]
          %7 = reduce(%6) dimensions=[1] kind=add : f32[1,3]
          %8 = reduce(%2) dimensions=[1] kind=or : pred[1,3]
          %9 = transpose(%7) permutation=[1,0] : f32[3,1]
          %10 = transpose(%8) permutation=[1,0] : pred[3,1]
          %11 = dot_general(%x, %gate) lhs_contracting_dims=[1] rhs_contracting_dims=[2] \
dtype=f32 : f32[1,3,2]
          %12 = dot_general(%x, %up) lhs_contracting_dims=[1] rhs_contracting_dims=[2] dtype=f32 \
: f32[1,3,2]
          %13 = constant() value=f32[](0.0) : f32[]
          %14 = broadcast_in_dim(%13) shape=[1,3,2] : f32[1,3,2]
          %15 = maximum(%11, %14) : f32[1,3,2]
          %16 = multiply(%15, %12) : f32[1,3,2]
          %17 = dot_general(%16, %down) lhs_contracting_dims=[2] rhs_contracting_dims=[2] \
lhs_batch_dims=[1] rhs_batch_dims=[0] dtype=f32 : f32[3,1,4]
          %18 = broadcast_in_dim(%9) shape=[3,1,4] dimensions=[0,1] : f32[3,1,4]
          %19 = multiply(%17, %18) : f32[3,1,4]
          %20 = broadcast_in_dim(%10) shape=[3,1,4] dimensions=[0,1] : pred[3,1,4]
          %21 = constant() value=f32[](0.0) : f32[]
          %22 = broadcast_in_dim(%21) shape=[3,1,4] : f32[3,1,4]
          %23 = select(%20, %19, %22) : f32[3,1,4]
          %y = reduce(%23) dimensions=[0] kind=add : f32[1,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "dispatch-experts"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # The results of a token's experts are summed in another order.
    rounding: ClassVar[float] = 2e-2
    form: str = option(words(*EXPERT_DISPATCH), DISPATCH_AUTO)
    block: int = 0
    target: str = option(words(target_names), "cpu")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The mixtures of every function."""
        loops = LoopFunctions(SharedFunctions(module))
        for function in list(module.functions.values()):
            mixtures = [op for op in function.block if op.name == "experts"]
            templates = OpTemplates()
            for op in mixtures:
                if rewriter.exhausted:
                    break
                self._dispatch(function, op, rewriter, loops, templates)
            if mixtures:
                # The products of quantized weights exist only now.
                scale_products(function, rewriter)
        for function in loops.shared.put_first():
            scale_products(function, rewriter)

    def _dispatch(
        self,
        function: Function,
        op: Op,
        rewriter: Rewriter,
        loops: LoopFunctions,
        templates: OpTemplates,
    ) -> None:
        sizes = MixtureSizes.of(op)
        rates = rates_of(find_target(self.target), op.operands[3].dtype, sizes.bytes)
        costs = form_costs(sizes, rates, (self.block,) if self.block else BLOCKS)
        chosen = min(
            (cost for cost in costs if self.form in (DISPATCH_AUTO, cost.form)),
            key=lambda cost: cost.seconds,
        )
        for cost in costs:
            if cost is not chosen:
                rewriter.decline(function, cost.form, op, self._refusal(cost, chosen))
        if rewriter.declines(function, op, chosen.form):
            return
        compute = loops.looped if rates.loops else None
        with rewriter.before(function, op) as b:
            form, block = chosen.form, chosen.block
            build = partial(dispatched, b, op.operands, op.attrs, form, block, compute)
            values = templates.place(b, op, experts_kind(op, form, block), lambda: [build()])
        rewriter.replace(function, op, values, form, gain=chosen.text)
        numbers = ", ".join(cost.text for cost in costs)
        rewriter.remark(f"@{function.name}: {_named(sizes)}: {chosen.form}; {numbers}")

    def _refusal(self, cost: FormCost, chosen: FormCost) -> NoMatch:
        """Why a form was not taken."""
        if self.form != DISPATCH_AUTO:
            return no_match(f"form={self.form} is set")
        return no_match(f"{cost.text} is slower than {chosen.text}")


def _named(sizes: MixtureSizes) -> str:
    return f"{sizes.tokens} tokens, {sizes.chosen} of {sizes.experts} experts"
