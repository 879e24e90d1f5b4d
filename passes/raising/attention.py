"""Attention, raised from two products with a softmax between, in whatever layout they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import pred
from passes.core import No, no, rule
from passes.raising.peel import filled, without
from passes.raising.softmax import Scores, scores_of, softmax_of

_MOVES_NOTHING = ("rope", "convert", "multiply", "divide", "add", "rms_norm", "subtract")


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand of a product with two batch dimensions.

    Attributes:
        value: the operand.
        batch: its batch dimensions, in the product's order.
        summed: its contracted dimension.
        free: the one that is left.
    """

    value: Value
    batch: tuple[int, int]
    summed: int
    free: int


@rule("dot_general")
def raise_attention(op: Op, b: Builder) -> Sequence[Value] | No:
    """``softmax(mask(q k)) v`` is attention; keys that are repeated for each query are not."""
    sides = _sides(op)
    if sides is None:
        return no("it is no product over two batch dimensions", op.result)
    swapped = softmax_of(sides[0].value) is None
    weights, values = (sides[1], sides[0]) if swapped else sides
    masked = softmax_of(weights.value)
    if masked is None:
        return no("no operand is a softmax", op.result)
    if (weights.summed, weights.free) != (3, 2) or set(weights.batch) != {0, 1}:
        return no("the softmax is not over the slots", weights.value)
    scores = scores_of(masked)
    if scores is None:
        return no("what the softmax is taken of is not scaled and masked scores", masked)
    product = scores.dot.op
    assert product is not None
    pair = _sides(product)
    if pair is None:
        return no("the scores are no product over two batch dimensions", scores.dot)
    query, keys = pair
    heads = _head_dim(query)
    if heads is None:
        return no("which dimension of the queries holds heads is not known", query.value)
    if len({side.value.dtype for side in (query, keys, values)}) > 1:
        return no("queries, keys and values are of different types", op.result)
    return _attention(op, b, scores, query, keys, weights, values, heads, swapped)


def _attention(
    op: Op,
    b: Builder,
    scores: Scores,
    query: _Side,
    keys: _Side,
    weights: _Side,
    values: _Side,
    heads: int,
    swapped: bool,
) -> Sequence[Value] | No:
    """Everything brought into the layout of the composite, and its result back."""
    # Of the scores' two batch dimensions, the one that holds rows.
    rows = 1 - heads
    mask = _mask(b, scores, rows, heads)
    if mask is None:
        return no("the mask differs from head to head", scores.mask)
    q = _ordered(b, query, rows, heads, tokens=query.free, size=query.summed)
    k = _ordered(b, keys, rows, heads, tokens=keys.free, size=keys.summed)
    # The batch dimensions of the second product are dimensions 0 and 1 of the scores.
    first = weights.batch.index(0)
    placed = _Side(
        values.value, (values.batch[first], values.batch[1 - first]), values.summed, values.free
    )
    v = _ordered(b, placed, rows, heads, tokens=placed.summed, size=placed.free)
    if scores.divisor != 1:
        q = b.binary("divide", q, b.full(scores.divisor, q.type))
    if _once(k).shape[2] == _once(v).shape[2]:
        k, v = _once(k), _once(v)
    made = b.attention(q, k, v, mask, scale=scores.factor)
    # [B,S,H,D] to the second product's order: its batch dimensions, then what is free.
    place = {rows: 0, heads: 2}
    order = [place[dim] for dim in weights.batch] + ([3, 1] if swapped else [1, 3])
    return [b.convert(b.transpose(made, order), op.result.dtype)]


def _sides(op: Op) -> tuple[_Side, _Side] | None:
    """The operands of a product of [b0,b1,m,k] and [b0,b1,n,k], in any order of dimensions."""
    found: list[_Side] = []
    for value, side in zip(op.operands, ("lhs", "rhs"), strict=True):
        batch = op.attrs.integers(f"{side}_batch_dims")
        summed = op.attrs.integers(f"{side}_contracting_dims")
        if value.type.rank != 4 or len(batch) != 2 or len(summed) != 1:
            return None
        (free,) = set(range(4)) - {*batch, *summed}
        found.append(_Side(value, (batch[0], batch[1]), summed[0], free))
    return found[0], found[1]


def _ordered(b: Builder, side: _Side, rows: int, heads: int, tokens: int, size: int) -> Value:
    """An operand as [B, tokens, heads, head size]."""
    order = [side.batch[rows], tokens, side.batch[heads], size]
    value = side.value
    return value if order == [0, 1, 2, 3] else b.transpose(value, order)


def _head_dim(query: _Side) -> int | None:
    """Which batch dimension of the scores counts heads: the one split off from the features."""
    value, dims = query.value, list(range(4))
    while value.op is not None:
        op = value.op
        if op.name == "transpose":
            permutation = op.attrs.integers("permutation")
            dims = [permutation[dim] for dim in dims]
            value = op.operands[0]
        elif op.name == "reshape":
            return _split_off(op, query, dims)
        elif op.name in _MOVES_NOTHING:
            same = [operand for operand in op.operands if operand.shape == value.shape]
            own = [v for v in same if v.producer("broadcast_in_dim") is None]
            if not own:
                return None
            value = own[0]
        else:
            return None
    return None


def _split_off(op: Op, query: _Side, dims: list[int]) -> int | None:
    """Of a reshape [..,H*D] to [..,H,D]: which batch dimension is H, before the last one."""
    (source,) = op.operands
    shape = op.result.shape
    if op.result.type.rank != 4 or source.shape[:-1] != shape[:2]:
        return None
    for index, dim in enumerate(query.batch):
        if dims[dim] == 2:
            return index
    return None


def _mask(b: Builder, scores: Scores, rows: int, heads: int) -> Value | None:
    """The mask as [B,S,C]; ``None`` where heads do not share one."""
    batch = scores.dot.shape
    shape = (batch[rows], batch[2], batch[3])
    if scores.mask is None:
        allowed = b.literal(True, pred)
        return b.broadcast_in_dim(allowed, shape, [])
    found = without(b, scores.mask, [rows, 2, 3], scores.at)
    return filled(b, found, shape) if found is not None else None


def _once(value: Value) -> Value:
    """Keys [B,C,H,D] before each head was repeated for the queries that read it."""
    inner, order = value, [0, 1, 2, 3]
    while (moved := inner.producer("transpose")) is not None:
        permutation = moved.attrs.integers("permutation")
        inner, order = moved.operands[0], [permutation[dim] for dim in order]
    at = order[2]
    merged = inner.producer("reshape")
    spread = merged.operands[0].producer("broadcast_in_dim") if merged is not None else None
    if spread is None or spread.result.type.rank != 5 or spread.operands[0].type.rank != 4:
        return value
    (source,) = spread.operands
    shape = spread.result.shape
    merges = (*shape[:at], inner.shape[at], *shape[at + 2 :]) == inner.shape
    kept = tuple(dim for dim in range(5) if dim != at + 1)
    if not merges or spread.attrs.integers("dimensions") != kept:
        return value
    return source if order == [0, 1, 2, 3] else Builder.current().transpose(source, order)
