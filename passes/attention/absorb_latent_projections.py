"""Absorb the projections of latent attention into queries and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import LATENT_AUTO, LATENT_FORMS
from graphgen.ir import Function, Module, Value
from graphgen.ir.dtype import f32
from graphgen.passes.attention.latent_match import LatentAttention, LatentProjection, match_latent
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.report.units import number
from graphgen.targets import Throughput, find_target, target_names, throughput


@dataclass(frozen=True, slots=True)
class LatentCost:
    """The work of one form.

    Attributes:
        form: ``expand`` or ``absorb``.
        elements: moved between memory and the products.
        flops: operations.
        seconds: of a target.
    """

    form: str
    elements: int
    flops: int
    seconds: float

    @property
    def text(self) -> str:
        """The numbers, for people."""
        work = f"{number(self.elements)} elements, {number(self.flops)} operations"
        return f"{self.form} {self.seconds * 1e3:.3g} ms ({work})"


def latent_costs(found: LatentAttention, rate: Throughput) -> tuple[LatentCost, LatentCost]:
    """The costs of ``expand`` and ``absorb``."""
    batch, active, heads, _ = found.op.operands[0].type.dims
    attended, latent = found.keys.latent.type.dims[1:]
    plain, shared, value = found.keys.size, found.shared.type.dims[3], found.values.size
    weights = latent * heads * (plain + value)
    read = weights + batch * attended * (latent + shared)
    made = 2 * batch * attended * heads * (plain + shared + value)
    scored = 2 * batch * active * heads * attended
    expanded = 2 * batch * attended * weights + scored * (plain + shared + value)
    absorbed = 2 * batch * active * weights + scored * (2 * latent + shared)

    def cost(form: str, elements: int, flops: int) -> LatentCost:
        return LatentCost(form, elements, flops, rate.seconds(elements, flops))

    return cost("expand", read + made, expanded), cost("absorb", read, absorbed)


@register
@dataclass(frozen=True)
class AbsorbLatentProjections(Pass):
    """Absorb key and value projections, so that attention reads the latent vector itself.

    ``q (c U) = (q U') c`` and ``p (c V) = (p c) V`` (weight absorption, arXiv 2405.04434): the
    queries are multiplied by the weight of the keys, the latent vectors are keys and values of one
    head, and the result is multiplied by the weight of the values. So a decode step makes no keys
    and values of all cached tokens. Where it costs more, as for long prompts, the program goes on
    making them: see :mod:`graphgen.passes.attention.absorb_latent_projections`. If one program of a
    module absorbs, the weights of the others are stacked by heads as well, so that they are kept
    once.

    Options:
        form: ``absorb`` or ``expand`` for all programs, ``auto`` for what costs the least.
        target: what the programs will run on.

    Given:
        module @m level=canonical {
          input %q : f32[1,1,2,3]
          input %c : f32[1,4,1,3]
          input %mask : pred[1,1,4]
          weight %k : f32[4,2]
          weight %v : f32[4,2]
          output %y : f32[1,1,2,2]
        }

        func @f phase=decode {
          arg %q : f32[1,1,2,3]
          arg %c : f32[1,4,1,3]
          arg %mask : pred[1,1,4]
          arg %k : f32[4,2]
          arg %v : f32[4,2]
          %0 = slice(%c) start_indices=[0,0,0,0] limit_indices=[1,4,1,2] : f32[1,4,1,2]
          %1 = reshape(%0) shape=[1,4,2] : f32[1,4,2]
          %2 = slice(%c) start_indices=[0,0,0,2] limit_indices=[1,4,1,3] : f32[1,4,1,1]
          %3 = broadcast_in_dim(%2) shape=[1,4,2,1] dimensions=[0,1,2,3] : f32[1,4,2,1]
          %4 = dot_general(%1, %k) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,4,4]
          %5 = reshape(%4) shape=[1,4,2,2] : f32[1,4,2,2]
          %6 = concatenate(%5, %3) dimension=3 : f32[1,4,2,3]
          %7 = dot_general(%1, %v) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,4,4]
          %8 = reshape(%7) shape=[1,4,2,2] : f32[1,4,2,2]
          %y = attention(%q, %6, %8, %mask) scale=0.5 : f32[1,1,2,2]
          return y = %y
        }

    Result:
        module @m level=canonical {
          input %q : f32[1,1,2,3]
          input %c : f32[1,4,1,3]
          input %mask : pred[1,1,4]
          weight %k : f32[4,2]
          weight %v : f32[4,2]
          output %y : f32[1,1,2,2]
        }

        func @f phase=decode {
          arg %q : f32[1,1,2,3]
          arg %c : f32[1,4,1,3]
          arg %mask : pred[1,1,4]
          arg %k : f32[4,2]
          arg %v : f32[4,2]
          %0 = slice(%c) start_indices=[0,0,0,0] limit_indices=[1,4,1,2] : f32[1,4,1,2]
          %1 = slice(%q) start_indices=[0,0,0,0] limit_indices=[1,1,2,2] : f32[1,1,2,2]
          %2 = reshape(%k) shape=[2,2,2] : f32[2,2,2]
          %3 = dot_general(%1, %2) lhs_contracting_dims=[3] rhs_contracting_dims=[1] \
lhs_batch_dims=[2] rhs_batch_dims=[0] dtype=f32 : f32[2,1,1,2]
          %4 = slice(%q) start_indices=[0,0,0,2] limit_indices=[1,1,2,3] : f32[1,1,2,1]
          %5 = transpose(%3) permutation=[1,2,0,3] : f32[1,1,2,2]
          %6 = concatenate(%5, %4) dimension=3 : f32[1,1,2,3]
          %7 = attention(%6, %c, %0, %mask) scale=0.5 : f32[1,1,2,2]
          %8 = reshape(%v) shape=[2,2,2] : f32[2,2,2]
          %9 = dot_general(%7, %8) lhs_contracting_dims=[3] rhs_contracting_dims=[2] \
lhs_batch_dims=[2] rhs_batch_dims=[0] dtype=f32 : f32[2,1,1,2]
          %y = transpose(%9) permutation=[1,2,0,3] : f32[1,1,2,2]
          return y = %y
        }
    """

    name: ClassVar[str] = "absorb-latent-projections"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned", "raw-weights")
    # Queries and results are rounded in the latent space, keys and values are not.
    rounding: ClassVar[float] = 2e-2
    # Products are taken in another order: in f16 that of a query and weights may be too large where
    # that of weights and a small latent vector is not.
    finite_math_only: ClassVar[bool] = True
    form: str = option(words(*LATENT_FORMS), LATENT_AUTO)
    target: str = option(words(target_names), "cpu")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Choose for every attention, then rewrite."""
        chosen: list[tuple[Function, LatentAttention, LatentCost]] = []
        for function in module.programs():
            for op in function.block:
                found = match_latent(op) if op.name == "attention" else None
                if isinstance(found, NoMatch):
                    rewriter.decline(function, "absorb", op, found)
                elif found is not None:
                    chosen.append((function, found, self._choose(function, found, rewriter)))
        if not any(cost.form == "absorb" for _, _, cost in chosen):
            return
        for function, found, cost in chosen:
            if cost.form == "absorb":
                _replace(function, found, cost, rewriter)
            else:
                for part in (found.keys, found.values):
                    _stack(function, part, rewriter)
        for function in dict.fromkeys(function for function, _, _ in chosen):
            # No weight is prepared for what nothing reads any more.
            rewriter.erase_unread(function)

    def _choose(self, function: Function, found: LatentAttention, rewriter: Rewriter) -> LatentCost:
        element = found.op.operands[0].dtype
        rate = throughput(find_target(self.target), element.name, element.bits, element.bits // 8)
        costs = latent_costs(found, rate)
        asked = [cost for cost in costs if self.form in (LATENT_AUTO, cost.form)]
        best = min(asked, key=lambda cost: cost.seconds)
        for cost in costs:
            if cost is not best:
                slower = f"{cost.text} is slower than {best.text}"
                why = slower if self.form == LATENT_AUTO else f"form={self.form} is set"
                rewriter.decline(function, cost.form, found.op, no_match(why))
        rewriter.remark(
            f"@{function.name}: latent attention: {best.form}; {costs[0].text}, {costs[1].text}"
        )
        return best


def _replace(
    function: Function, found: LatentAttention, cost: LatentCost, rewriter: Rewriter
) -> None:
    """Emit the absorbed form in the place of an attention."""
    if rewriter.exhausted or rewriter.declines(function, found.op, "absorb"):
        return
    with rewriter.before(function, found.op) as b:
        value = _absorbed(b, found)
    rewriter.replace(function, found.op, [value], "absorb", gain=cost.text)


def _absorbed(b: Builder, found: LatentAttention) -> Value:
    """The result of the attention, [B,S,H,W]."""
    op, keys, values = found.op, found.keys, found.values
    query, dtype = op.operands[0], op.operands[0].dtype
    plain = _scaled(b, _columns(b, query, 0, keys.size), keys)
    # [B,S,H,N] x [H,N,L] -> [H,B,S,L]
    weight = keys.stacked(b)
    moved = b.dot_general(b.convert(plain, weight.dtype), weight, ([3], [1]), ([2], [0]), dtype)
    rotated = _columns(b, query, keys.size, query.type.dims[3])
    query = b.concatenate([b.transpose(moved, [1, 2, 0, 3]), rotated], 3)
    read = [b.convert(value, dtype) for value in (found.cached(b), found.vector(b))]
    operands = (query, *read, *op.operands[3:])
    out = b.emit("attention", operands, dict(op.attrs)).result
    # [B,S,H,L] x [H,W,L] -> [H,B,S,W]
    wide = f32 if values.scale is not None else dtype
    weight = values.stacked(b)
    made = b.dot_general(b.convert(out, weight.dtype), weight, ([3], [2]), ([2], [0]), wide)
    return b.convert(_scaled(b, b.transpose(made, [1, 2, 0, 3]), values), dtype)


def _scaled(b: Builder, x: Value, part: LatentProjection) -> Value:
    """``x`` [B,S,H,N] times the scales of a quantized weight, in its own type."""
    scales = part.scales(b, x)
    return x if scales is None else b.convert(b.convert(x, scales.dtype) * scales, x.dtype)


def _columns(b: Builder, query: Value, start: int, limit: int) -> Value:
    """Elements of each head of a query, without a slice where they are an operand."""
    joined = query.producer("concatenate")
    at = 0
    for part in joined.operands if joined is not None else ():
        size = part.type.dims[3]
        if (at, at + size) == (start, limit):
            return part
        at += size
    return b.slice_dim(query, 3, start, limit)


def _stack(function: Function, part: LatentProjection, rewriter: Rewriter) -> None:
    """The product with the weight [H,N,L] in the place of one with [H*N,L]."""
    op = part.value.op
    if op is None or rewriter.exhausted or rewriter.declines(function, op, "stack"):
        return
    with rewriter.before(function, op) as b:
        # [B,C,L] x [H,N,L] -> [B,C,H,N]
        dtype = part.product.result.dtype
        made = b.dot_general(part.latent, part.stacked(b), ([2], [2]), dtype=dtype)
        scales = part.scales(b, made)
        made = made if scales is None else made * scales
        made = b.convert(made, part.value.dtype)
    rewriter.replace(function, op, [made], "stack")
