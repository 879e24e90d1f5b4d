"""What reads only the model's heads reads all of them, up to the weight that gives each its part.

The counterpart of :mod:`graphgen.passes.heads.commute`: the take of the model's heads out of
those that are
laid out moves on, op by op, until a product sums over the heads. There the weight is laid out like
the heads, with zeros for those that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.heads.commute import BINARY, UNARY, respread, result_dims, same_for_all
from graphgen.passes.heads.takes import Move, Takes

# (the op, which operand is a take, what take, where takes are made, where the new op goes)
# -> the result, or all of them
Absorb = Callable[[Op, int, Move, Takes, Builder], Value | Sequence[Value] | NoMatch]


def taken(op: Op, index: int) -> Value:
    """What the take that is operand ``index`` takes from."""
    made = op.operands[index].op
    assert made is not None
    return made.operands[0]


def _elementwise(op: Op, index: int, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    """The other operands are laid out like it; what they are in a zero head, nobody reads."""
    source = taken(op, index)
    back = move.back(move.size_of(source))
    for value in op.operands:
        if value.shape != op.result.shape:
            return no_match("its operands differ in shape", value)
    if op.name == "divide" and not same_for_all(op.operands[1], move.dim):
        return no_match("zero heads would be divided by zero", op.operands[1], depth=2)
    operands: list[Value] = []
    for value in op.operands:
        other = value.producer("take")
        if other is not None and Move.of(other) == move:
            operands.append(other.operands[0])
        elif same_for_all(value, move.dim):
            operands.append(respread(b, value, source.shape))
        else:
            operands.append(takes.take(value, back))
    return takes.take(b.emit(op.name, operands, dict(op.attrs)).result, move)


def _clamp(op: Op, index: int, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    low, _, high = op.operands
    if low.shape or high.shape:
        return no_match("its bounds are not the same for all", op.operands[0])
    operands = [low, taken(op, index), high]
    return takes.take(b.emit(op.name, operands, dict(op.attrs)).result, move)


def _reshape(op: Op, index: int, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    source = taken(op, index)
    after = move.through_reshape(op.operands[0].shape, op.result.shape)
    if after is None:
        return no_match("the heads are no run of blocks behind the reshape", op.operands[0])
    shape = list(op.result.shape)
    shape[after.dim] = move.size_of(source) * after.block
    return takes.take(b.reshape(source, shape), after)


def _transpose(op: Op, index: int, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    order = op.attrs.integers("permutation")
    return takes.take(b.transpose(taken(op, index), order), move.at(order.index(move.dim)))


def _dot_general(op: Op, index: int, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    """A sum over the heads: the other operand gets zeros where nothing was taken."""
    source = taken(op, index)
    sides = [op.attrs.integers(f"{side}_contracting_dims") for side in ("lhs", "rhs")]
    operands = list(op.operands)
    operands[index] = source
    if move.dim in sides[index]:
        dim = sides[1 - index][sides[index].index(move.dim)]
        back = move.back(move.size_of(source)).at(dim)
        operands[1 - index] = takes.take(operands[1 - index], back)
        return b.emit(op.name, operands, dict(op.attrs)).result
    for dim, sources in enumerate(result_dims(op)):
        if sources == [(index, move.dim)]:
            made = b.emit(op.name, operands, dict(op.attrs)).result
            return takes.take(made, move.at(dim))
    return no_match("the heads are a batch of the product", op.operands[index])


ABSORBS: dict[str, Absorb] = {
    **dict.fromkeys((*BINARY, "divide", "and", "compare", "select"), _elementwise),
    **dict.fromkeys(UNARY, _elementwise),
    "clamp": _clamp,
    "reshape": _reshape,
    "transpose": _transpose,
    "dot_general": _dot_general,
}
