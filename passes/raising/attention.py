"""Raise attention: two products with a softmax between, in any order of dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value, tensor
from graphgen.ir.dtype import f32, pred
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.attention_dims import (
    GROUP,
    HEADS,
    ROWS,
    SIZE,
    SLOTS,
    TOKENS,
    AttentionOperand,
    Dims,
    dims_of,
)
from graphgen.passes.raising.matchers import laid_out, plain
from graphgen.passes.raising.softmax import Over, Scores, scores_of, softmax_of

_QUERY: tuple[str, ...] = (ROWS, TOKENS, HEADS, GROUP, SIZE)
_KEYS: tuple[str, ...] = (ROWS, SLOTS, HEADS, SIZE)
_MASK: tuple[str, ...] = (ROWS, TOKENS, SLOTS)


@rule("dot_general")
def raise_attention(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``softmax(mask(q k)) v`` is attention; keys that are repeated for each query are not."""
    for weights in (0, 1):
        found = _weights(op.operands[weights])
        if found is None:
            continue
        masked, order = found
        scores = scores_of(masked)
        if isinstance(scores, NoMatch):
            return scores
        dims = dims_of(op, weights, order, scores)
        return dims if isinstance(dims, NoMatch) else attention_of(op, b, [(scores, dims)])
    return NoMatch("no operand is a softmax", op.result)


def _weights(value: Value) -> tuple[Value, tuple[int, ...]] | None:
    """Match a softmax: its operand, and the operand's dimension of each dimension of ``value``."""
    value = plain(value)
    order = tuple(range(value.type.rank))
    turned = value.producer("transpose")
    if turned is not None:
        value, order = turned.operands[0], turned.attrs.integers("permutation")
    masked = softmax_of(value)
    return (masked, order) if masked is not None else None


def attention_of(
    op: Op, b: Builder, parts: Sequence[tuple[Scores, Dims]]
) -> Sequence[Value] | NoMatch:
    """Build the composite: operands in its layout, and its result in the layout of ``op``.

    Args:
        op: the product whose result is replaced.
        b: the builder.
        parts: parts of the cache positions in order; all of one query.
    """
    sides = [_of_one_type(dims) for _, dims in parts]
    known = [side for side in sides if side is not None]
    if len(known) < len(parts) or len({side[0].value.dtype for side in known}) > 1:
        return no_match("queries, keys and values are of different types", op.result, depth=15)
    for scores, dims in parts:
        for over in (*scores.masks, *((scores.bias,) if scores.bias is not None else ())):
            if not _is_shared(over, dims):
                return no_match("the mask differs from head to head", over.value, depth=16)
    (scores, dims), query = parts[0], known[0][0]
    q = _ordered(b, query, _QUERY)
    rows, tokens, heads, group, size = q.shape
    q = b.reshape(q, (rows, tokens, heads * group, size))
    for name, number in scores.steps:
        q = b.binary(name, q, b.broadcast_in_dim(b.convert(number, q.dtype), q.shape, []))
    pairs = [[_ordered(b, side, _KEYS) for side in part[1:]] for part in known]
    if len({_once(value).shape[2] for pair in pairs for value in pair}) == 1:
        pairs = [[_once(value) for value in pair] for pair in pairs]
    k, v = (_joined(b, values, 1) for values in zip(*pairs, strict=True))
    shapes = [(rows, tokens, pair[0].shape[1]) for pair in pairs]
    mask = _joined(
        b, [_mask(b, *part, shape) for part, shape in zip(parts, shapes, strict=True)], 2
    )
    bias = _bias(b, scores, dims, (*shapes[0], q.shape[2]))
    made = b.attention(q, k, v, mask, scores.factor, *bias)
    whole = dict(zip(_QUERY, (rows, tokens, heads, group, v.shape[3]), strict=True))
    return [b.convert(_laid_out(b, made, dims.result, whole), op.result.dtype)]


def _laid_out(b: Builder, made: Value, roles: Sequence[str], sizes: Mapping[str, Dim]) -> Value:
    """Transpose the result [B,S,H,D] to the order of ``roles``."""
    present = [role for role in _QUERY if role in roles]
    made = b.reshape(made, [sizes[role] for role in present])
    order = [present.index(role) for role in roles]
    return made if order == sorted(order) else b.transpose(made, order)


def _joined(b: Builder, values: Sequence[Value], dim: int) -> Value:
    return values[0] if len(values) == 1 else b.concatenate(values, dim)


def _of_one_type(dims: Dims) -> tuple[AttentionOperand, AttentionOperand, AttentionOperand] | None:
    """Return operands of one type, if necessary those before their conversions."""
    sides = (dims.query, dims.keys, dims.values)
    if len({side.value.dtype for side in sides}) == 1:
        return sides
    q, k, v = (AttentionOperand(plain(side.value), side.dims) for side in sides)
    return (q, k, v) if q.value.dtype is k.value.dtype is v.value.dtype else None


def _ordered(b: Builder, side: AttentionOperand, roles: Sequence[str]) -> Value:
    """Transpose an operand to this order of roles; a missing one gets size 1."""
    value = side.value
    order = [side.dims[role] for role in roles if role in side.dims]
    turned = value if order == sorted(order) else b.transpose(value, order)
    shape = [value.shape[side.dims[role]] if role in side.dims else 1 for role in roles]
    return b.reshape(turned, shape)


def _is_shared(over: Over, dims: Dims) -> bool:
    """Test whether a value is the same for all heads."""
    heads = {dims.scores[role] for role in (HEADS, GROUP) if role in dims.scores}
    sizes = zip(over.at, over.value.shape, strict=True)
    return all(size == 1 for dim, size in sizes if dim in heads)


def _mask(b: Builder, scores: Scores, dims: Dims, shape: Sequence[Dim]) -> Value:
    """Build the conjunction of the masks, [B,S,C]."""
    masks = [_placed(b, over, dims, shape) for over in scores.masks]
    if not masks:
        return b.broadcast_in_dim(b.literal(True, pred), shape, [])
    found = masks[0]
    for mask in masks[1:]:
        found = b.binary("and", found, mask)
    return found


def _bias(b: Builder, scores: Scores, dims: Dims, shape: Sequence[Dim]) -> list[Value]:
    """Build a bias as ALiBi: the distance is the bias, the slope of each head is 1."""
    if scores.bias is None:
        return []
    *outer, heads = shape
    distance = b.convert(_placed(b, scores.bias, dims, outer), f32)
    return [b.full(1.0, tensor(f32, (heads,))), distance]


def _placed(b: Builder, over: Over, dims: Dims, shape: Sequence[Dim]) -> Value:
    """Broadcast a value that all heads share to [B,S,C]."""
    roles = {dim: role for role, dim in dims.scores.items()}
    kept = [index for index, dim in enumerate(over.at) if roles[dim] in _MASK]
    value = b.reshape(over.value, [over.value.shape[index] for index in kept])
    return laid_out(b, value, [_MASK.index(roles[over.at[index]]) for index in kept], shape)


def _once(value: Value) -> Value:
    """Undo the repetition of each key-value head for its query heads, in keys [B,C,H,D]."""
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
