"""Sink head gathers through ops: ``gather(f(x)) = f(gather(x))``.

The padding heads that a gather adds are never used, but they must stay finite: in the end they are
multiplied by zero weights. A rule that does not apply returns its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphgen.build import Builder
from graphgen.ir import AttrValue, Dim, Literal, Op, Value
from graphgen.ir.dtype import f32
from graphgen.ops import Trait, ops_with
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.gqa.head_gather import GatherEmitter, HeadGather
from graphgen.passes.gqa.head_map import ZERO
from graphgen.passes.weights.scale_blocks import BlockScaled

# (the op, the gather of its result, the emitter of gathers, the builder at the op) -> the result.
SinkRule = Callable[[Op, HeadGather, GatherEmitter, Builder], Value | NoMatch]
SINK_RULES: dict[str, SinkRule] = {}


def _sinks(*names: str) -> Callable[[SinkRule], SinkRule]:
    """Register the rule of these ops."""

    def register(rule: SinkRule) -> SinkRule:
        SINK_RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def _again(b: Builder, op: Op, operands: Sequence[Value], **attrs: AttrValue) -> Value:
    """Emit the same op with other operands and attributes."""
    return b.emit(op.name, operands, {**op.attrs, **attrs}).result


@_sinks(*ops_with(Trait.FINITE_AT_ZERO))
def _each(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """Elementwise: gather every operand; all have one shape."""
    for value in op.operands:
        if value.shape != op.result.shape:
            return no_match("its operands differ in shape", value)
    return _again(b, op, [emitter.emit(value, gather) for value in op.operands])


@_sinks("divide")
def _divide(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    dividend, divisor = op.operands
    if is_broadcast_along(divisor, gather.dim):
        return _each(op, gather, emitter, b)
    spread = divisor.producer("broadcast_in_dim")
    if spread is None or spread.operands[0].producer("constant") is None:
        return no_match("zero heads would be divided by zero", divisor, depth=2)
    # A padding head is divided by the constant of the first head.
    known = replace(gather, blocks=tuple([max(block, 0) for block in gather.blocks]))
    return _again(b, op, [emitter.emit(dividend, gather), emitter.emit(divisor, known)])


@_sinks("clamp")
def _clamp(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """Scalar bounds stay."""
    low, x, high = op.operands
    if low.shape or high.shape:
        return no_match("its bounds are not the same for all", op.operands[0])
    return _again(b, op, [low, emitter.emit(x, gather), high])


def is_broadcast_along(value: Value, dim: int) -> bool:
    """True if ``value`` is a broadcast along ``dim``, so that its elements are equal there."""
    spread = value.producer("broadcast_in_dim")
    if spread is None:
        return False
    sources = zip(spread.operands[0].shape, spread.attrs.integers("dimensions"), strict=True)
    return all(target != dim or size == 1 for size, target in sources)


def rebroadcast(b: Builder, value: Value, shape: Sequence[Dim]) -> Value:
    """Emit the broadcast ``value`` with another shape."""
    spread = value.producer("broadcast_in_dim")
    assert spread is not None
    return _again(b, spread, spread.operands, shape=tuple(shape))


@_sinks("broadcast_in_dim")
def _broadcast(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    if is_broadcast_along(op.result, gather.dim):
        return rebroadcast(b, op.result, gather.result_shape(op.result))
    operand = op.operands[0]
    source = op.attrs.integers("dimensions").index(gather.dim)
    gathered = emitter.emit(operand, gather.at(source))
    return _again(b, op, [gathered], shape=gather.result_shape(op.result))


@_sinks("reshape")
def _reshape(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    before = gather.through_reshape(op.result.shape, op.operands[0].shape)
    if before is None:
        return no_match("the heads are not a run of blocks before the reshape", op.operands[0])
    gathered = emitter.emit(op.operands[0], before)
    return _again(b, op, [gathered], shape=gather.result_shape(op.result))


@_sinks("transpose")
def _transpose(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    source = op.attrs.integers("permutation")[gather.dim]
    return _again(b, op, [emitter.emit(op.operands[0], gather.at(source))])


@_sinks("slice")
def _slice(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """Blocks of a slice are blocks of the operand at an offset."""
    operand, dim = op.operands[0], gather.dim
    starts, limits = list(op.attrs.dims("start_indices")), list(op.attrs.dims("limit_indices"))
    strides = op.attrs.integers("strides") or (1,) * len(starts)
    start, size = starts[dim], operand.shape[dim]
    if strides[dim] != 1 or not isinstance(start, int) or start % gather.block:
        return no_match("the slice does not begin with a block", operand)
    if not isinstance(size, int) or size % gather.block:
        return no_match("the slice does not have whole blocks", operand, depth=2)
    ahead = start // gather.block
    blocks = tuple([block + ahead if block >= 0 else block for block in gather.blocks])
    gathered = emitter.emit(operand, HeadGather(blocks, dim, gather.block))
    starts[dim], limits[dim] = 0, gathered.shape[dim]
    if not any(starts) and tuple(limits) == gathered.shape and set(strides) == {1}:
        return gathered
    return _again(b, op, [gathered], start_indices=tuple(starts), limit_indices=tuple(limits))


@_sinks("concatenate")
def _concatenate(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    if op.attrs.integer("dimension") == gather.dim:
        return no_match("heads are joined one after the other", op.operands[0])
    return _again(b, op, [emitter.emit(value, gather) for value in op.operands])


@_sinks("dequantize")
def _dequantize(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """Gather the numbers, and with them the scales and zero points of their blocks."""
    return gathered_blocks(BlockScaled.of(op), gather, emitter, b).emit(b, op)


def gathered_blocks(
    scaled: BlockScaled,
    gather: HeadGather,
    emitter: GatherEmitter,
    b: Builder,
    undone: HeadGather | None = None,
) -> BlockScaled:
    """Gather the operands of a ``dequantize``, in blocks that the gather keeps whole.

    A padding head is of zeros: where zero points are, its scale becomes 0. An operand that is a
    gather ``undone`` becomes what that one gathers from.
    """
    dim = gather.dim

    def gathered(value: Value, block: int) -> Value:
        made = value.producer("take")
        found = HeadGather.of(made) if made is not None else None
        if made is not None and undone is not None and found == replace(undone, block=block):
            return made.operands[0]
        return emitter.emit(value, replace(gather, block=block))

    values = gathered(scaled.values, gather.block)
    if scaled.one_for_all(dim) and (len(scaled.facts) == 1 or ZERO not in gather.blocks):
        size = values.shape[dim]
        assert isinstance(size, int)
        block = (*scaled.block[:dim], max(scaled.block[dim], size), *scaled.block[dim + 1 :])
        return BlockScaled(values, scaled.facts, block)
    if scaled.one_for_all(dim):
        facts = _padded_facts(scaled, gather, b)
        block = (*scaled.block[:dim], gather.block, *scaled.block[dim + 1 :])
        return BlockScaled(values, facts, block)
    fine = scaled.finer(b, dim, gather.block)
    run = gather.block // fine.block[dim]
    return BlockScaled(values, tuple([gathered(x, run) for x in fine.facts]), fine.block)


def _padded_facts(scaled: BlockScaled, gather: HeadGather, b: Builder) -> tuple[Value, ...]:
    """One scale and zero point of all heads for each block of the gather: scales 0 for padding.

    A gather of equal scales would sink through their broadcast, which has no zeros.
    """
    shape = list(scaled.facts[0].shape)
    shape[gather.dim] = len(gather.blocks)
    dims = list(range(len(shape)))
    scale, *zero_points = [b.broadcast_in_dim(fact, shape, dims) for fact in scaled.facts]
    there = b.literal([float(block != ZERO) for block in gather.blocks], scale.dtype)
    return scale * b.broadcast_in_dim(there, shape, [gather.dim]), *zero_points


@_sinks("quantize_rows", "dequantize_rows")
def _rows(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """Each row has a scale of its own, and zeros are bytes 0."""
    if gather.dim == op.result.type.rank - 1:
        return no_match("the heads are within a row that has one scale", op.operands[0])
    return _again(b, op, [emitter.emit(op.operands[0], gather)])


@_sinks("reduce")
def _reduce(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    operand = op.operands[0]
    left = [dim for dim in range(operand.type.rank) if dim not in op.attrs.integers("dimensions")]
    return _again(b, op, [emitter.emit(operand, gather.at(left[gather.dim]))])


@_sinks("dot_general")
def _dot_general(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """Gather the operand that the result dimension comes from; both for a batch dimension."""
    operands = list(op.operands)
    for side, dim in result_dims(op)[gather.dim]:
        operands[side] = emitter.emit(operands[side], gather.at(dim))
    return _again(b, op, operands)


def result_dims(op: Op) -> list[list[tuple[int, int]]]:
    """Per result dimension of a ``dot_general``, its ``(operand, dimension)`` sources."""
    out = [
        [(0, left), (1, right)]
        for left, right in zip(
            op.attrs.integers("lhs_batch_dims"), op.attrs.integers("rhs_batch_dims"), strict=True
        )
    ]
    for side, name in enumerate(("lhs", "rhs")):
        used = {*op.attrs.integers(f"{name}_batch_dims")}
        used |= {*op.attrs.integers(f"{name}_contracting_dims")}
        rank = op.operands[side].type.rank
        out += [[(side, dim)] for dim in range(rank) if dim not in used]
    return out


@_sinks("rms_norm", "layer_norm")
def _norm(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """A norm over the features of each head, or one of mean squares over those of all heads."""
    x, weight = op.operands[:2]
    if gather.dim != x.type.rank - 1:
        return _again(b, op, [emitter.emit(x, gather), *op.operands[1:]])
    copies = {gather.blocks.count(block) for block in range(gather.block_count(x))}
    size = x.shape[gather.dim]
    if op.name != "rms_norm" or len(copies) != 1 or not isinstance(size, int):
        return no_match(f"{op.name} is over all heads, not over each", x)
    # Each element is there as often as any other, and padding is 0: the sum is a multiple.
    wide = b.convert(emitter.emit(x, gather), f32)
    mean = b.reduce(wide * wide, [gather.dim], "add") / float(size * copies.pop())
    root = b.unary("rsqrt", mean + op.attrs.number("epsilon"))
    outer = list(range(gather.dim))
    normal = b.convert(wide * b.broadcast_in_dim(root, wide.shape, outer), weight.dtype)
    row = emitter.emit(weight, gather.at(0))
    return normal * b.broadcast_in_dim(row, normal.shape, [gather.dim])


@_sinks("rope", "cache_read")
def _operand_of_heads(
    op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    if gather.dim != 2:
        return no_match("the heads are not in dimension 2", op.operands[0])
    return _again(b, op, [emitter.emit(op.operands[0], gather), *op.operands[1:]])


@_sinks("kv_update")
def _kv_update(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    if gather.dim != 2:
        return no_match("the heads are not in dimension 2", op.operands[0])
    cache, new = [emitter.emit(value, gather) for value in op.operands[:2]]
    return _again(b, op, [cache, new, *op.operands[2:]])


@_sinks("embedding")
def _embedding(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """Gather the columns of the table; relative positions are a table of a bias per head."""
    if gather.dim != op.result.type.rank - 1:
        return no_match("the heads are not in the rows of the table", op.operands[1])
    return _again(b, op, [emitter.emit(op.operands[0], gather.at(1)), op.operands[1]])


@_sinks("constant")
def _constant(op: Op, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    """Fold the gather of a constant."""
    old = op.attrs.literal("value")
    if old.dtype.bits % 8:
        return no_match("its elements are smaller than a byte", op.result)
    step = old.dtype.bits // 8 * gather.block
    for size in old.shape[gather.dim + 1 :]:
        step *= size
    count = gather.block_count(op.result)
    rows = range(0, len(old.data), step * count)
    data = b"".join(
        old.data[row + step * block : row + step * (block + 1)] if block >= 0 else bytes(step)
        for row in rows
        for block in gather.blocks
    )
    shape = list(old.shape)
    shape[gather.dim] = len(gather.blocks) * gather.block
    return b.emit("constant", (), {"value": Literal(old.dtype, tuple(shape), data)}).result
