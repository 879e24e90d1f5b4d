"""Products with numbers of one scale for all that is summed are scaled after the sum."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Function, Op, Value
from graphgen.ir.dims import Shape
from graphgen.ir.dtype import f32, f64
from graphgen.passes.core import NoMatch, Rewriter, no_match, rule
from graphgen.passes.quantization.product_weight import ProductWeight, product_dims, product_weight
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
    if weight.lookup is not None:
        scaled = _chosen(b, weight, scaled)
    if why is None:
        return [_scaled(b, op, scaled)]
    if weight.lookup is None:
        return why
    chosen = scaled.emit(b, made)
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


def _scaled(b: Builder, op: Op, scaled: BlockScaled) -> Value:
    """The product of the numbers, each of its elements with its scale.

    Where several programs read a stack of matrices, some of which choose matrices, they read scales
    of as many dimensions as the stack has: without those of size 1 they would be kept twice.
    """
    lhs, scale = op.operands[0], next(iter(scaled.facts))
    wide = f64 if op.result.dtype is f64 else f32
    numbers = b.convert(scaled.values, lhs.dtype)
    product = b.emit("dot_general", (lhs, numbers), {**op.attrs, "dtype": wide})
    shared = [dim for dim, block in enumerate(scaled.block) if block != 1]
    over = sorted({*shared, *op.attrs.integers("rhs_contracting_dims")})
    found, shape = product_dims(product), product.result.shape
    after = {dim: len(shape) + place for place, dim in enumerate(over)}
    places = [after.get(dim, found.get(dim, -1)) for dim in range(scale.type.rank)]
    scale = b.convert(scale, wide)
    if scale.type.rank > 2 and places == sorted(places):
        whole = (*shape, *[1] * len(over))
        spread = b.broadcast_in_dim(scale, whole, places)
        made = b.reshape(b.reshape(product.result, whole) * spread, shape)
    else:
        kept = [dim for dim in range(scale.type.rank) if dim not in over]
        made = product.result * _spread(b, scale, kept, [places[dim] for dim in kept], shape)
    return b.convert(made, op.result.dtype)


def _spread(
    b: Builder, scale: Value, kept: Sequence[int], places: Sequence[int], shape: Shape
) -> Value:
    """Some dimensions of the scales, each at its place of a shape."""
    scale = b.reshape(scale, [scale.shape[dim] for dim in kept])
    order = sorted(range(len(kept)), key=places.__getitem__)
    if order != list(range(len(kept))):
        scale = b.transpose(scale, order)
    return b.broadcast_in_dim(scale, shape, sorted(places))


def _chosen(b: Builder, weight: ProductWeight, scaled: BlockScaled) -> BlockScaled:
    """The numbers and the scales of the chosen matrices."""
    facts = tuple([weight.read(b, fact) for fact in scaled.facts])
    return BlockScaled(weight.read(b, scaled.values), facts, weight.blocks(scaled.block))
