"""Products with numbers of one scale for all that is summed are scaled after the sum."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Function, Op, Value
from graphgen.ir.dtype import f32, f64
from graphgen.passes.core import NoMatch, Rewriter, no_match, rule
from graphgen.passes.quantize.product_weight import ProductWeight, product_weight
from graphgen.passes.weights.scale_blocks import BlockScaled

_ERASED = ("dequantize", "gather", "take")


def scale_products(function: Function, rewriter: Rewriter) -> None:
    """Scale the products of a program, and erase what is no longer widened or chosen."""
    rewriter.apply_rules(function, (scale_product,))
    for op in reversed(function.block):
        if op.name in _ERASED and not op.result.users and not function.returns(op.result):
            if rewriter.exhausted:
                return
            rewriter.erase(function, op)


@rule("dot_general")
def scale_product(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x @ dequantize(q, s) = (x @ q) * s`` where the scale does not differ along the sum.

    Of what is chosen of a stack of matrices, as of experts, the numbers and the scales are chosen.
    A product of numbers that have a scale a group widens those of the chosen matrices alone.
    """
    rhs = op.operands[1]
    weight = product_weight(op, _is_dequantized)
    if isinstance(weight, str):
        return no_match(weight, rhs)
    made = weight.value.producer("dequantize")
    if made is None:
        return no_match("its right operand is not dequantized", rhs)
    scaled = BlockScaled.of(made)
    why = _why_not_scaled(weight, scaled)
    if why is None:
        return [_scaled(b, op, weight, scaled)]
    if weight.lookup is None:
        return why
    chosen = _chosen(b, weight, scaled).emit(b, made)
    return [b.emit("dot_general", (op.operands[0], chosen), dict(op.attrs)).result]


def _is_dequantized(value: Value) -> bool:
    return value.producer("dequantize") is not None


def _why_not_scaled(weight: ProductWeight, scaled: BlockScaled) -> NoMatch | None:
    """Why the scales cannot follow the product."""
    if len(scaled.facts) > 1:
        return no_match("the numbers have zero points", weight.value, depth=2)
    scale = next(iter(scaled.facts))
    if any(scale.shape[dim] != 1 for dim in weight.contracted):
        return no_match("the scales differ along what is summed", scale, depth=4)
    if any(
        block != 1 and count != 1 for block, count in zip(scaled.block, scale.shape, strict=True)
    ):
        return no_match("the scales are of several rows", scale, depth=5)
    return None


def _scaled(b: Builder, op: Op, weight: ProductWeight, scaled: BlockScaled) -> Value:
    """The product of the numbers, each of its elements with its scale."""
    lhs, scale = op.operands[0], next(iter(scaled.facts))
    wide = f64 if op.result.dtype is f64 else f32
    numbers = b.convert(weight.read(b, scaled.values), lhs.dtype)
    product = b.emit("dot_general", (lhs, numbers), {**op.attrs, "dtype": wide})
    shared = [dim for dim, block in enumerate(scaled.block) if block != 1]
    over = sorted({*shared, *weight.contracted})
    kept = [size for dim, size in enumerate(scale.shape) if dim not in over]
    read = weight.read(b, b.reshape(b.convert(scale, wide), kept), over)
    return b.convert(product.result * weight.spread(b, read, product, over), op.result.dtype)


def _chosen(b: Builder, weight: ProductWeight, scaled: BlockScaled) -> BlockScaled:
    """The numbers and the scales of the chosen matrices."""
    facts = tuple([weight.read(b, fact) for fact in scaled.facts])
    return BlockScaled(weight.read(b, scaled.values), facts, weight.blocks(scaled.block))
