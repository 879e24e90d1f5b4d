"""Fold head gathers into the output projection: ``f(gather(x)) = gather(f(x))``.

The counterpart of :mod:`graphgen.passes.gqa.sink_gather`: gathers move op by op to the product
that sums over the heads. There the other operand is gathered instead, with zeros for padding heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ops import Trait, ops_with
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.gqa.head_gather import GatherEmitter, HeadGather
from graphgen.passes.gqa.sink_gather import (
    gathered_blocks,
    is_broadcast_along,
    rebroadcast,
    result_dims,
)
from graphgen.passes.weights.scale_blocks import BlockScaled

# (the op, index of the gathered operand, its gather, the emitter of gathers, the builder at the op)
# -> the result, or all results
FoldRule = Callable[
    [Op, int, HeadGather, GatherEmitter, Builder], Value | Sequence[Value] | NoMatch
]
FOLD_RULES: dict[str, FoldRule] = {}


def _folds(*names: str) -> Callable[[FoldRule], FoldRule]:
    """Register the rule of these ops."""

    def register(rule: FoldRule) -> FoldRule:
        FOLD_RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def gather_source(op: Op, index: int) -> Value:
    """The operand of the gather that operand ``index`` is."""
    made = op.operands[index].op
    assert made is not None
    return made.operands[0]


@_folds(*ops_with(Trait.FINITE_AT_ZERO))
def _elementwise(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    """Gather the other operands to match; the values of padding heads are unused."""
    source = gather_source(op, index)
    inverse = gather.inverse(gather.block_count(source))
    for value in op.operands:
        if value.shape != op.result.shape:
            return no_match("its operands differ in shape", value)
    if op.name == "divide" and not is_broadcast_along(op.operands[1], gather.dim):
        return no_match("zero heads would be divided by zero", op.operands[1], depth=2)
    operands: list[Value] = []
    for value in op.operands:
        other = value.producer("take")
        if other is not None and HeadGather.of(other) == gather:
            operands.append(other.operands[0])
        elif is_broadcast_along(value, gather.dim):
            operands.append(rebroadcast(b, value, source.shape))
        else:
            operands.append(emitter.emit(value, inverse))
    return emitter.emit(b.emit(op.name, operands, dict(op.attrs)).result, gather)


@_folds("clamp")
def _clamp(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    low, _, high = op.operands
    if low.shape or high.shape:
        return no_match("its bounds are not the same for all", op.operands[0])
    operands = [low, gather_source(op, index), high]
    return emitter.emit(b.emit(op.name, operands, dict(op.attrs)).result, gather)


@_folds("dequantize")
def _dequantize(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    """Gather all operands to match: zeros for the scales of padding."""
    if index != 0:
        return no_match("the numbers are not laid out as their scales are", op.operands[0])
    inverse = gather.inverse(gather.block_count(gather_source(op, index)))
    wide = gathered_blocks(BlockScaled.of(op), inverse, emitter, b, gather).emit(b, op)
    made = emitter.emit(wide, gather)
    # Its padding is zeros: who needs some there takes it as it is.
    emitter.rebind(made, inverse, wide)
    return made


@_folds("quantize_rows", "dequantize_rows")
def _rows(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    if gather.dim == op.result.type.rank - 1:
        return no_match("the heads are within a row that has one scale", op.operands[0])
    source = gather_source(op, index)
    return emitter.emit(b.emit(op.name, [source], dict(op.attrs)).result, gather)


@_folds("reshape")
def _reshape(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    source = gather_source(op, index)
    after = gather.through_reshape(op.operands[0].shape, op.result.shape)
    if after is None:
        return no_match("the heads are not a run of blocks after the reshape", op.operands[0])
    shape = list(op.result.shape)
    shape[after.dim] = gather.block_count(source) * after.block
    return emitter.emit(b.reshape(source, shape), after)


@_folds("transpose")
def _transpose(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    order = op.attrs.integers("permutation")
    return emitter.emit(
        b.transpose(gather_source(op, index), order), gather.at(order.index(gather.dim))
    )


@_folds("dot_general")
def _dot_general(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    """A sum over heads: the other operand gets zeros for padding heads."""
    source = gather_source(op, index)
    sides = [op.attrs.integers(f"{side}_contracting_dims") for side in ("lhs", "rhs")]
    operands = list(op.operands)
    operands[index] = source
    if gather.dim in sides[index]:
        dim = sides[1 - index][sides[index].index(gather.dim)]
        inverse = gather.inverse(gather.block_count(source)).at(dim)
        operands[1 - index] = emitter.emit(operands[1 - index], inverse)
        return b.emit(op.name, operands, dict(op.attrs)).result
    for dim, sources in enumerate(result_dims(op)):
        if sources == [(index, gather.dim)]:
            made = b.emit(op.name, operands, dict(op.attrs)).result
            return emitter.emit(made, gather.at(dim))
    return no_match("the heads are a batch of the product", op.operands[index])
