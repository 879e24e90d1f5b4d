"""Weights of several products side by side, as they are stored: widened or dequantized after."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.canonical.slice_algebra import join
from graphgen.passes.weights.materialization import only_enlarges, weight_of, widened
from graphgen.passes.weights.scale_blocks import BlockScaled


def weight_parts(dot: Op) -> tuple[Value, ...]:
    """The right operand of a product as it is stored: numbers, their scales and zero points."""
    made = _dequantized(dot)
    return (weight_of(dot),) if made is None else made.operands


def weight_key(dot: Op) -> tuple[object, ...]:
    """Key that must be equal for weights to be joined: types, and the blocks of the depth."""
    made = _dequantized(dot)
    types = tuple([part.dtype for part in weight_parts(dot)])
    if made is None:
        return types
    axes = dot.attrs.integers("rhs_contracting_dims")
    return (*types, *[made.attrs.integers("block")[axis] for axis in axes])


def join_weights(b: Builder, dots: Sequence[Op], axis: int) -> Value:
    """The right operands of products, which have equal keys, along the axis of their outputs."""
    made = [op for dot in dots if (op := _dequantized(dot)) is not None]
    if not made:
        joined = join(b, [weight_of(dot) for dot in dots], axis)
        return b.convert(joined, dots[0].operands[1].dtype)
    # A scale of several outputs is repeated for each of them.
    scaled = [BlockScaled.of(op).finer(b, axis, 1) for op in made]
    values = join(b, [each.values for each in scaled], axis)
    facts = [join(b, parts, axis) for parts in zip(*[each.facts for each in scaled], strict=True)]
    return BlockScaled(values, tuple(facts), scaled[0].block).emit(b, made[0])


def widening(dot: Op) -> Op | None:
    """The op that computes the right operand of a product from stored values, if there is one."""
    return _dequantized(dot) or widened(dot)


def _dequantized(dot: Op) -> Op | None:
    """The op that gives each number its scale, unless its result is what is stored."""
    made = dot.operands[1].producer("dequantize")
    return made if made is not None and only_enlarges(made) else None
