"""Activations as 8-bit numbers: products of narrow weights with narrow rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import ACTIVATIONS_BLOCKS, ACTIVATIONS_DYNAMIC, ACTIVATIONS_STATIC
from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, DType, Function, Module, Op, Value
from graphgen.ir.dims import product
from graphgen.ir.dtype import f8e5m2, f32, f64, s8, s32
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.quantization.integer_blocks import (
    ChosenWeights,
    block_product,
    block_weight,
    bounded,
)
from graphgen.passes.quantization.narrow_budgets import NARROW_BUDGETS
from graphgen.passes.quantization.static_scales import StaticScales
from graphgen.passes.weights.materialization import widened

# The number that the largest of a row becomes. NxD Inference's: 240 for f8e4m3, as Neuron's ends.
_LIMITS = {"s8": 127.0, "f8e4m3": 240.0, "f8e4m3fn": 240.0, "f8e5m2": 57344.0}
# More products of two 8-bit integers may not fit into 32 bits.
_DEEPEST = (2**31 - 1) // (127 * 128)


@register
@dataclass(frozen=True)
class QuantizeActivations(Pass):
    """Quantize the rows that narrow weights multiply: a scale per row, product or group.

    AWS's ``activation_quantization_type="dynamic"``: ``x @ q`` is ``(n @ q) * scale``, with
    ``n = x / scale`` rounded and ``scale`` the largest element of the row over the type's limit:
    127 for integers, 240 for f8e4m3. It comes after ``quantize-weights``, or a checkpoint with
    narrow weights, and after ``partition``: each rank scales its own part of a row, so no rank
    waits for another one's largest element.

    With ``scale=static``, AWS's other one, each product has one scale, found beforehand: from the
    file ``ranges``, which ``graphgen calibrate`` writes, or without it from ``X.input_scale`` of a
    checkpoint, beside ``X.weight``. Larger magnitudes are clamped to the largest number.

    With ``scale=blocks``, the products of weights that are integers, of 4 bits too, read
    ``dequantize(n, scale)``: integers of 8 bits, with a scale for each group of the weight, or each
    64 elements where that has no groups. A row's largest element then takes steps from its own
    block alone. ``select-kernels`` makes such products ones of integers on the CPU.

    A product of which ``native`` has no type is made of the same numbers, widened: it is rounded
    alike. A norm that nothing else reads is joined with what follows it: ``rms_norm_quantize``.

    Options:
        native: element types of products of the target; others are widened again.
        clamp_bound: largest absolute value of what is quantized, NxD Inference's
            ``quantize_clamp_bound``; 0 for any.
        scale: ``dynamic`` for one a row, ``static`` for one a product, found beforehand, ``blocks``
            for one a block of a row.
        ranges: the file that static scales come from; empty for those of the checkpoint.
        weights: names, as in a shell, of the weights whose products have narrow rows; none for all.
        rescaled: f8e4m3fn numbers of the checkpoint became 240 at most, for Neuron; so do those of
            activations with its scales.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %norm : f32[4]
          weight %q : s8[6,4]
          output %y : f32[2,6]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %norm : f32[4]
          arg %q : s8[6,4]
          %h = rms_norm(%x, %norm) epsilon=1e-05 : f32[2,4]
          %0 = convert(%q) dtype=f32 : f32[6,4]
          %y = dot_general(%h, %0) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,6]
          return y = %y
        }

    Result (``quantize-activations{native=[s8]}`` ``dce``):
        module @m level=canonical {
          input %x : f32[2,4]
          weight %norm : f32[4]
          weight %q : s8[6,4]
          output %y : f32[2,6]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %norm : f32[4]
          arg %q : s8[6,4]
          %0, %1 = rms_norm_quantize(%x, %norm) epsilon=1e-05 dtype=s8 limit=127.0 : s8[2,4], f32[2]
          %2 = dot_general(%0, %q) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=s32 : \
s32[2,6]
          %3 = convert(%2) dtype=f32 : f32[2,6]
          %4 = transpose(%1) permutation=[0] : f32[2]
          %5 = broadcast_in_dim(%4) shape=[2,6] dimensions=[0] : f32[2,6]
          %y = multiply(%3, %5) : f32[2,6]
          return y = %y
        }
    """

    name: ClassVar[str] = "quantize-activations"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    native: tuple[str, ...] = ()
    clamp_bound: float = 0.0
    scale: str = option(
        words(ACTIVATIONS_DYNAMIC, ACTIVATIONS_STATIC, ACTIVATIONS_BLOCKS), ACTIVATIONS_DYNAMIC
    )
    ranges: str = ""
    rescaled: bool = False
    weights: tuple[str, ...] = ()

    @property
    def budget(self) -> float:
        """The budget of the coarsest type.

        A step is as fine as one of a weight with a scale a channel, but a static scale spans the
        largest numbers of all rows: most have half of the steps. Blocks are of integers.
        """
        if self.scale == ACTIVATIONS_BLOCKS:
            return NARROW_BUDGETS[s8]
        return (2 if self.scale == ACTIVATIONS_STATIC else 1) * NARROW_BUDGETS[f8e5m2]

    @property
    def approximated(self) -> tuple[str, ...]:
        """Products, where a static scale clamps activations outside of the calibrated ranges."""
        clamps = self.scale == ACTIVATIONS_STATIC or self.clamp_bound > 0
        return ("dot_general",) if clamps else ()

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The products of every program, then the norms before them.

        Raises:
            GraphgenError: GG0302 for a bound below 0 and for ranges without effect, GG0304 where no
                product has a narrow weight, or none has a static scale.
        """
        if not (self.clamp_bound >= 0 and isfinite(self.clamp_bound)):
            what = f"{self.name}: clamp_bound={self.clamp_bound} is not a bound"
            raise GraphgenError("GG0302", what, help="give a number above 0, or 0 for none")
        static, blocks = self.scale == ACTIVATIONS_STATIC, self.scale == ACTIVATIONS_BLOCKS
        if self.ranges and not static:
            what = f"{self.name}: scale={self.scale} reads no ranges"
            raise GraphgenError("GG0302", what, help="leave them out, or give scale=static")
        programs = module.programs()
        chosen = {each: ChosenWeights(module, each, self.weights) for each in programs}
        narrow = block_weight if blocks else _narrow_weight
        if not any(narrow(op, chosen[each]) for each in programs for op in each.block):
            named = f" called {' or '.join(self.weights)}" if self.weights else ""
            kind = "integers of 4 or 8 bits" if blocks else "8 bits"
            raise GraphgenError(
                "GG0304",
                f"{self.name}: no product has a weight of {kind}{named}",
                help="quantize the weights too: --quantized, or a quantized checkpoint",
            )
        for function in programs:
            if blocks:
                own = block_product(chosen[function], self.clamp_bound)
                rewriter.apply_rules(function, (own,))
                continue
            scales = (
                StaticScales(module, function, self.ranges, rescaled=self.rescaled)
                if static
                else None
            )
            rewriter.apply_rules(function, (_narrow_product(self, scales, chosen[function]),))
            rewriter.apply_rules(function, (_join_norm(function),))
            if scales is not None:
                scales.require_some()


def _narrow_weight(op: Op, chosen: ChosenWeights) -> Value | None:
    """The 8-bit right operand, if its scale is constant along the contracted dimensions.

    Numbers with a scale a group of columns are ``dequantize``, not a conversion.
    """
    made = widened(op) if op.name == "dot_general" else None
    if made is None or made.operands[0].dtype.name not in _LIMITS:
        return None
    return made.operands[0] if made.operands[0] in chosen else None


def _narrow_product(
    options: QuantizeActivations, static: StaticScales | None, chosen: ChosenWeights
) -> Rule:
    @rule("dot_general")
    def narrow_product(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``x @ wide(q)`` is ``(n @ q) * scale`` with ``n, scale = quantize(x)``."""
        lhs, weight = op.operands[0], _narrow_weight(op, chosen)
        if weight is None:
            what = "its right operand is not a widened 8-bit weight that was chosen"
            return no_match(what, op.operands[1])
        why = _why_not(op, lhs)
        if why is not None:
            return why
        summed = op.attrs.integers("lhs_contracting_dims")
        bound = bounded(b, lhs, options.clamp_bound)
        if static is not None:
            made = static.quantize(b, bound, weight)
            if isinstance(made, NoMatch):
                return made
        else:
            made = _quantized(b, bound, weight.dtype, summed)
        narrow, scale = made
        wide = f64 if op.result.dtype is f64 else f32
        sums = _product(b, op, (narrow, weight), options.native, wide)
        factor = _spread(b, op, b.convert(scale, wide), sums)
        return [b.convert(sums * factor, op.result.dtype)]

    return narrow_product


def _why_not(op: Op, lhs: Value) -> NoMatch | None:
    made = lhs.producer("convert")
    if made is not None and made.operands[0].dtype.bits <= 8:
        return no_match("its left operand is narrow already", lhs, depth=2)
    if lhs.dtype is f64:
        return no_match("8 bits would lose what f64 holds", lhs, depth=3)
    summed = product(lhs.shape[dim] for dim in op.attrs.integers("lhs_contracting_dims"))
    if not (isinstance(summed, int) and 0 < summed <= _DEEPEST):
        return no_match(f"{summed} products do not fit into 32 bits", lhs, depth=4)
    return None


def _spread(b: Builder, op: Op, scale: Value, sums: Value) -> Value:
    """One scale, or one a row of the left operand, for each element of a product."""
    if scale.type.rank == 0:
        return b.broadcast_in_dim(scale, sums.shape, [])
    summed, batch = op.attrs.integers("lhs_contracting_dims"), op.attrs.integers("lhs_batch_dims")
    kept = [dim for dim in range(op.operands[0].type.rank) if dim not in summed]
    rows = [dim for dim in kept if dim not in batch]
    ordered = b.transpose(scale, [kept.index(dim) for dim in (*batch, *rows)])
    return b.broadcast_in_dim(ordered, sums.shape, list(range(len(kept))))


def _quantized(b: Builder, x: Value, element: DType, dims: Sequence[int]) -> tuple[Value, Value]:
    """Numbers of ``x`` and a scale a row; those that another product of ``x`` has, if there are."""
    limit = _LIMITS[element.name]
    for user in x.users:
        if (
            user.name == "quantize"
            and user.attrs.element("dtype") is element
            and user.attrs.integers("dimensions") == tuple(dims)
            and user.attrs.number("limit") == limit
        ):
            return user.results[0], user.results[1]
    return b.quantize(x, element, dims, limit)


def _product(
    b: Builder, op: Op, operands: tuple[Value, Value], native: Sequence[str], wide: DType
) -> Value:
    """The sums of products of narrow numbers, as ``wide``."""
    element = operands[0].dtype
    if element.name in native:
        kind = s32 if element.is_integer else wide
        return b.convert(b.emit("dot_general", operands, {**op.attrs, "dtype": kind}).result, wide)
    same = op.operands[0].dtype
    # Numbers of 8 bits are numbers of bf16, f16 and f32 too, but for 57344 products of f16.
    parts = [b.convert(operands[0], same), b.convert(operands[1], same)]
    return b.emit("dot_general", parts, {**op.attrs, "dtype": wide}).result


def _join_norm(function: Function) -> Rule:
    @rule("quantize")
    def join_norm(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``quantize(rms_norm(x))`` over the last dimension is ``rms_norm_quantize(x)``."""
        (x,) = op.operands
        norm = x.producer("rms_norm")
        if norm is None:
            return no_match("its operand is not an rms_norm", x)
        if op.attrs.integers("dimensions") != (x.type.rank - 1,):
            return no_match("the scale is not that of a row", x, depth=2)
        if list(x.users) != [op] or function.returns(x):
            return no_match("others read the norm too", x, depth=3)
        attrs: dict[str, AttrValue] = {
            "epsilon": norm.attrs.number("epsilon"),
            "dtype": op.attrs.element("dtype"),
            "limit": op.attrs.number("limit"),
        }
        return b.emit("rms_norm_quantize", norm.operands, attrs).results

    return join_norm
