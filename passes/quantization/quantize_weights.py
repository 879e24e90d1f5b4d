"""Weights of products as narrow numbers and scales: less to keep, less to read for a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Op, Role, Value
from graphgen.ir.dtype import f32, f64, s8
from graphgen.ir.names import claim_name
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.core.relation import EQUAL, Quantized, Relation
from graphgen.passes.core.rule import Replacement
from graphgen.passes.quantization.narrow_budgets import NARROW_BUDGETS
from graphgen.passes.quantization.product_weight import ProductWeight
from graphgen.passes.quantization.quantizable_products import MATRICES, QuantizableProducts, names
from graphgen.passes.quantization.schemes import (
    ELEMENTS,
    GROUP,
    LOADED_DTYPES,
    LOADED_SCHEMES,
    PER_CHANNEL,
    WeightScheme,
    limit,
    loaded_scheme,
)
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.lift import joined
from graphgen.passes.weights.scale_blocks import BlockScaled


@register
@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Quantize the weights of products; multiply the product by the scale.

    ``x @ w`` is ``(x @ q) * scale``: the numbers are widened inside the product and no weight is
    ever held as floats again. A scale belongs to a whole tensor or to each output channel, and is
    found before a tensor is cut or joined, so every rank has the same. With a scale a group of
    inputs, as 4-bit integers need, the product reads ``dequantize(q, scale)``. Everything is IR
    that ``lift-weights`` moves to ``@weights.global``: a checkpoint needs no preparation
    beforehand.

    A stack of matrices, such as the weight [experts,in,out], has the scales of each matrix. A
    ``gather`` or ``take`` of the stack becomes one of its numbers and one of its scales.
    ``experts`` read ``dequantize(q, scale)``, until their form is known.

    Embeddings are lookups, not products, and stay as they are; so does a weight that anything else
    reads, such as a tied embedding, and one that some program of the module reads otherwise: a
    weight is kept in one form. ``copies`` allows a second one: with a tied embedding a product
    then reads a fourth to a half of the bytes, and as many more are held.

    Options:
        dtype: of the numbers.
        scheme: what has a scale of its own: a tensor, each output channel of it, or each group of
            inputs of a channel.
        skip: weights that keep their type: parts of dotted names, as in ``layers.0.mlp`` or
            ``*_proj``.
        group_size: consecutive inputs of a group; 0 for the format's own, 64 of int4. Where it does
            not divide the inputs, the last group is short.
        copies: quantize for its product also a weight that something else reads as it is.

    Given:
        module @m level=canonical {
          input %x : bf16[2,4]
          weight %q_proj.weight : bf16[6,4]
          weight %lm_head.weight : bf16[9,6]
          output %y : f32[2,9]
        }

        func @f phase=decode {
          arg %x : bf16[2,4]
          arg %q_proj.weight : bf16[6,4]
          arg %lm_head.weight : bf16[9,6]
          %h = dot_general(%x, %q_proj.weight) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
dtype=bf16 : bf16[2,6]
          %y = dot_general(%h, %lm_head.weight) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
dtype=f32 : f32[2,9]
          return y = %y
        }

    Result:
        module @m level=canonical {
          input %x : bf16[2,4]
          weight %q_proj.weight : bf16[6,4]
          weight %lm_head.weight : bf16[9,6]
          output %y : f32[2,9]
        }

        func @f phase=decode {
          arg %x : bf16[2,4]
          arg %q_proj.weight : bf16[6,4]
          arg %lm_head.weight : bf16[9,6]
          %q_proj.weight.quantized, %q_proj.weight.scale = quantize(%q_proj.weight) dtype=s8 \
dimensions=[1] limit=127.0 : s8[6,4], f32[6]
          %0 = convert(%q_proj.weight.quantized) dtype=bf16 : bf16[6,4]
          %1 = dot_general(%x, %0) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
dtype=f32 : f32[2,6]
          %2 = broadcast_in_dim(%q_proj.weight.scale) shape=[2,6] dimensions=[1] : f32[2,6]
          %3 = multiply(%1, %2) : f32[2,6]
          %h = convert(%3) dtype=bf16 : bf16[2,6]
          %y = dot_general(%h, %lm_head.weight) lhs_contracting_dims=[1] \
rhs_contracting_dims=[1] dtype=f32 : f32[2,9]
          return y = %y
        }
    """

    name: ClassVar[str] = "quantize-weights"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    rounding: ClassVar[float] = NARROW_BUDGETS[s8]
    dtype: str = option(words(*LOADED_DTYPES), "int8")
    scheme: str = option(words(*LOADED_SCHEMES), PER_CHANNEL)
    skip: tuple[str, ...] = ("lm_head",)
    group_size: int = 0
    copies: bool = False

    @property
    def budget(self) -> float:
        """The budget of the element type."""
        return NARROW_BUDGETS[ELEMENTS[self.dtype]]

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Find what all programs can read as narrow numbers, then rewrite their products."""
        for key, known in (("dtype", LOADED_DTYPES), ("scheme", LOADED_SCHEMES)):
            if (value := getattr(self, key)) not in known:
                raise GraphgenError(
                    "GG0302",
                    f"quantize-weights: unknown {key} '{value}'",
                    help=f"known: {', '.join(known)}",
                )
        scheme = loaded_scheme(self.dtype, self.scheme, self.group_size)
        self._check_skip(module)
        products = QuantizableProducts(module, self.skip, copies=self.copies)
        for prepared in products.programs:
            lookups = products.lookups(prepared)
            rewriter.apply_rules(prepared.function, _quantizing(scheme, prepared, products))
            # Or the weight would still be read as it was.
            for op in lookups:
                if not op.result.users and not rewriter.exhausted:
                    rewriter.erase(prepared.function, op)

    def _check_skip(self, module: Module) -> None:
        """A pattern of the user must match a weight; the default may match none."""
        for pattern, near in self.unknown(module).items():
            raise GraphgenError(
                "GG0302",
                f"quantize-weights: skip={pattern} names no weight",
                help=f"did you mean {near[0]}?" if near else "",
            )

    def unknown(self, module: Module) -> Mapping[str, Sequence[str]]:
        """The patterns of ``skip`` that match no weight, with the nearest parts of names."""
        weights = [row.name for row in module.entries(Role.WEIGHT)]
        parts = {part for name in weights for part in name.split(".")} | {*type(self).skip}
        return {
            pattern: get_close_matches(pattern, sorted(parts), 3)
            for pattern in self.skip
            if pattern not in type(self).skip and not any(names(pattern, w) for w in weights)
        }


def _quantizing(
    scheme: WeightScheme, prepared: PreparedValues, products: QuantizableProducts
) -> tuple[Rule, Rule]:
    taken: set[str] = set()

    def name_of(weight: Value) -> str:
        return claim_name(weight.name or joined(prepared.sources(weight)), taken, 2)

    @rule("dot_general")
    def quantize_product(op: Op, b: Builder) -> Sequence[Value] | Replacement | NoMatch:
        """A product with a weight is one with narrow numbers, and then scaled."""
        why = products.why_not(op, prepared)
        if why is not None:
            return why
        weight = products.weight(op, prepared)
        if scheme.scheme == GROUP and len(weight.contracted) != 1:
            what = f"it sums over {len(weight.contracted)} dimensions"
            return no_match(what, weight.value, depth=9)
        name = name_of(weight.value)
        if scheme.scheme == GROUP:
            return _of_groups(b, op, scheme, weight, name)
        return _of_channels(b, op, scheme, weight, name)

    @rule("experts")
    def quantize_mixture(op: Op, b: Builder) -> Replacement | NoMatch:
        """Experts read numbers that are widened; where they are multiplied is decided later."""
        operands, pairs = list(op.operands), list[tuple[Value, Value, Relation]]()
        whys: list[NoMatch] = []
        for index in MATRICES:
            weight = op.operands[index]
            why = products.why_not_of_mixture(weight, prepared)
            if why is not None:
                whys.append(why)
                continue
            block = (1, *scheme.block(_matrix(weight)))
            scaled = _in_blocks(b, weight, scheme, block, name_of(weight))
            operands[index] = b.dequantize(
                scaled.values, *scaled.facts, block=scaled.block, dtype=weight.dtype
            )
            pairs.append((weight, operands[index], EQUAL))
        if not pairs:
            return whys[0]
        made = b.emit("experts", operands, dict(op.attrs)).result
        return Replacement([made], tuple(pairs))

    return quantize_product, quantize_mixture


def _matrix(weight: Value) -> tuple[int, int]:
    """The sizes of one matrix of a stack."""
    rows, columns = weight.shape[1:]
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    return rows, columns


def _in_blocks(
    b: Builder, whole: Value, scheme: WeightScheme, block: Sequence[int], name: str
) -> BlockScaled:
    """A weight as numbers with a scale a block, of which none is short."""
    sizes = zip(block, whole.shape, strict=True)
    each = tuple([min(item, size) for item, size in sizes if isinstance(size, int)])
    most = limit(scheme.dtype, scheme.scheme)
    values, scale = b.quantize(whole, ELEMENTS[scheme.dtype], (), most, each)
    values.name, scale.name = f"{name}.quantized", f"{name}.scale"
    return BlockScaled(values, (scale,), each).even(b)


def _of_channels(
    b: Builder, op: Op, scheme: WeightScheme, weight: ProductWeight, name: str
) -> Replacement:
    """A product of the numbers, scaled by a number a matrix, or by one a channel."""
    lhs, whole = op.operands[0], weight.value
    over = weight.contracted if scheme.scheme == PER_CHANNEL else weight.matrix
    most = limit(scheme.dtype, scheme.scheme)
    values, scale = b.quantize(whole, ELEMENTS[scheme.dtype], over, most)
    values.name, scale.name = f"{name}.quantized", f"{name}.scale"
    wide = f64 if op.result.dtype is f64 else f32
    operands = (lhs, b.convert(weight.read(b, values), lhs.dtype))
    product = b.emit("dot_general", operands, {**op.attrs, "dtype": wide})
    read = b.convert(weight.read(b, scale, over), wide)
    factor = weight.spread(b, read, product, over)
    made = b.convert(product.result * factor, op.result.dtype)
    dims = tuple([dim for dim in range(whole.type.rank) if dim not in over])
    return Replacement([made], ((whole, values, Quantized(scale.name, dims)),))


def _of_groups(
    b: Builder, op: Op, scheme: WeightScheme, weight: ProductWeight, name: str
) -> Replacement:
    """A product with numbers that are widened where they are read, a scale a group of inputs."""
    lhs, whole = op.operands[0], weight.value
    (dim,) = weight.contracted
    block = [1] * whole.type.rank
    block[dim] = scheme.group_size
    scaled = _in_blocks(b, whole, scheme, block, name)
    facts = [weight.read(b, fact) for fact in scaled.facts]
    read = BlockScaled(weight.read(b, scaled.values), tuple(facts), weight.blocks(scaled.block))
    wide = b.dequantize(read.values, *read.facts, block=read.block, dtype=whole.dtype)
    made = b.emit("dot_general", (lhs, wide), dict(op.attrs)).result
    return Replacement([made], ((op.operands[1], wide, EQUAL),))
