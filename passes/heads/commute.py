"""A take of what an op makes is what the op makes of takes: how takes move up to the weights.

What a zero head holds on its way is never read, but it has to stay a number: in the end it is
multiplied by zero weights. What cannot be passed says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.ir import AttrValue, Dim, Literal, Op, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.heads.takes import Move, Takes

# (the op, a take of its result, where takes are made, where the new op goes) -> what the take is.
Commute = Callable[[Op, Move, Takes, Builder], Value | NoMatch]


def _again(b: Builder, op: Op, operands: Sequence[Value], **attrs: AttrValue) -> Value:
    """The same op on other operands."""
    return b.emit(op.name, operands, {**op.attrs, **attrs}).result


def _each(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    """Element by element, all operands of one shape."""
    for value in op.operands:
        if value.shape != op.result.shape:
            return no_match("its operands differ in shape", value)
    return _again(b, op, [takes.take(value, move) for value in op.operands])


def _divide(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    if not same_for_all(op.operands[1], move.dim):
        return no_match("zero heads would be divided by zero", op.operands[1], depth=2)
    return _each(op, move, takes, b)


def _clamp(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    """The bounds are one number each."""
    low, x, high = op.operands
    if low.shape or high.shape:
        return no_match("its bounds are not the same for all", op.operands[0])
    return _again(b, op, [low, takes.take(x, move), high])


def same_for_all(value: Value, dim: int) -> bool:
    """Whether ``value`` is spread over ``dim``, so that it is the same all along."""
    spread = value.producer("broadcast_in_dim")
    if spread is None:
        return False
    sources = zip(spread.operands[0].shape, spread.attrs.integers("dimensions"), strict=True)
    return all(target != dim or size == 1 for size, target in sources)


def respread(b: Builder, value: Value, shape: Sequence[Dim]) -> Value:
    """The broadcast ``value`` in another shape."""
    spread = value.producer("broadcast_in_dim")
    assert spread is not None
    return _again(b, spread, spread.operands, shape=tuple(shape))


def _broadcast(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    if same_for_all(op.result, move.dim):
        return respread(b, op.result, move.shape_of(op.result))
    operand = op.operands[0]
    source = op.attrs.integers("dimensions").index(move.dim)
    taken = takes.take(operand, move.at(source))
    return _again(b, op, [taken], shape=move.shape_of(op.result))


def _reshape(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    before = move.through_reshape(op.result.shape, op.operands[0].shape)
    if before is None:
        return no_match("the heads are no run of blocks before the reshape", op.operands[0])
    taken = takes.take(op.operands[0], before)
    return _again(b, op, [taken], shape=move.shape_of(op.result))


def _transpose(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    source = op.attrs.integers("permutation")[move.dim]
    return _again(b, op, [takes.take(op.operands[0], move.at(source))])


def _slice(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    """Blocks of a part are blocks of the whole, further on."""
    operand, dim = op.operands[0], move.dim
    starts, limits = list(op.attrs.dims("start_indices")), list(op.attrs.dims("limit_indices"))
    strides = op.attrs.integers("strides") or (1,) * len(starts)
    start, size = starts[dim], operand.shape[dim]
    if strides[dim] != 1 or not isinstance(start, int) or start % move.block:
        return no_match("the slice does not begin with a block", operand)
    if not isinstance(size, int) or size % move.block:
        return no_match("what is sliced has no whole blocks", operand, depth=2)
    ahead = start // move.block
    blocks = tuple([block + ahead if block >= 0 else block for block in move.blocks])
    taken = takes.take(operand, Move(blocks, dim, move.block))
    starts[dim], limits[dim] = 0, taken.shape[dim]
    if not any(starts) and tuple(limits) == taken.shape:
        return taken
    return _again(b, op, [taken], start_indices=tuple(starts), limit_indices=tuple(limits))


def _concatenate(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    if op.attrs.integer("dimension") == move.dim:
        return no_match("heads are joined one after the other", op.operands[0])
    return _again(b, op, [takes.take(value, move) for value in op.operands])


def _reduce(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    operand = op.operands[0]
    left = [dim for dim in range(operand.type.rank) if dim not in op.attrs.integers("dimensions")]
    return _again(b, op, [takes.take(operand, move.at(left[move.dim]))])


def _dot_general(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    """Rows of the result are rows of the operand that they come from."""
    operands = list(op.operands)
    for side, dim in result_dims(op)[move.dim]:
        operands[side] = takes.take(operands[side], move.at(dim))
    return _again(b, op, operands)


def result_dims(op: Op) -> list[list[tuple[int, int]]]:
    """For each dimension of a product, the operands (0, 1) and dimensions that it comes from."""
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


def _norm(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    """A norm of each head by itself."""
    if move.dim == op.operands[0].type.rank - 1:
        return no_match(f"{op.name} is over all heads, not over each", op.operands[0])
    return _again(b, op, [takes.take(op.operands[0], move), *op.operands[1:]])


def _rope(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    if move.dim != 2:
        return no_match("the heads are not in dimension 2", op.operands[0])
    return _again(b, op, [takes.take(op.operands[0], move), *op.operands[1:]])


def _kv_update(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    if move.dim != 2:
        return no_match("the heads are not in dimension 2", op.operands[0])
    cache, new = [takes.take(value, move) for value in op.operands[:2]]
    return _again(b, op, [cache, new, *op.operands[2:]])


def _cache_read(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    if move.dim != 2:
        return no_match("the heads are not in dimension 2", op.operands[0])
    return _again(b, op, [takes.take(op.operands[0], move), op.operands[1]])


def _constant(op: Op, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    """The take itself, now."""
    old = op.attrs.literal("value")
    if old.dtype.bits % 8:
        return no_match("its elements are smaller than a byte", op.result)
    step = old.dtype.bits // 8 * move.block
    for size in old.shape[move.dim + 1 :]:
        step *= size
    count = move.size_of(op.result)
    rows = range(0, len(old.data), step * count)
    data = b"".join(
        old.data[row + step * block : row + step * (block + 1)] if block >= 0 else bytes(step)
        for row in rows
        for block in move.blocks
    )
    shape = list(old.shape)
    shape[move.dim] = len(move.blocks) * move.block
    return b.emit("constant", (), {"value": Literal(old.dtype, tuple(shape), data)}).result


# Functions of each element that make a number of the zeros of a head that is not there.
UNARY = (
    *("exponential", "exponential_minus_one", "log_plus_one", "sqrt", "cbrt", "erf", "sign"),
    *("logistic", "tanh", "cosine", "sine", "tan", "ceil", "floor", "round_nearest_even"),
    *("convert", "bitcast_convert", "negate", "abs", "silu", "gelu"),
)
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "divide")
COMMUTES: dict[str, Commute] = {
    **dict.fromkeys((*BINARY, "and", "compare", "select"), _each),
    **dict.fromkeys(UNARY, _each),
    "divide": _divide,
    "clamp": _clamp,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "reduce": _reduce,
    "dot_general": _dot_general,
    "rms_norm": _norm,
    "layer_norm": _norm,
    "rope": _rope,
    "kv_update": _kv_update,
    "cache_read": _cache_read,
    "constant": _constant,
}
