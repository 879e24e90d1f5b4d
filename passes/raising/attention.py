"""Raise attention: two products with a softmax between, in any order of dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value
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
from graphgen.passes.raising.matchers import placed
from graphgen.passes.raising.softmax import Over, Scores, nearly_softmax, scores_of, softmax_of
from graphgen.pattern.see_through import plain, spread

_QUERY: tuple[str, ...] = (ROWS, TOKENS, HEADS, GROUP, SIZE)
_KEYS: tuple[str, ...] = (ROWS, SLOTS, HEADS, SIZE)
# Masks and biases that all heads share, and those that differ.
_SHARED: tuple[str, ...] = (ROWS, TOKENS, SLOTS)
_PER_HEAD: tuple[str, ...] = (ROWS, HEADS, GROUP, TOKENS, SLOTS)

# One part of the cache positions: its scores, its layout.
Part = tuple[Scores, Dims]


@rule("dot_general")
def raise_attention(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``softmax(mask(q k)) v`` is attention; keys that are repeated for each query are not."""
    for weights in (0, 1):
        found = _weights(op.operands[weights])
        if found is None:
            continue
        scores = scores_of(found.scores)
        if isinstance(scores, NoMatch):
            return scores
        dims = dims_of(op, weights, found.order, scores)
        if isinstance(dims, NoMatch):
            return dims
        return attention_of(op, b, [(scores, dims)], found.sinks)
    near = [miss for miss in map(_nearly_weights, op.operands) if miss is not None]
    return near[0] if near else NoMatch("no operand is a softmax", op.result)


def _nearly_weights(value: Value) -> NoMatch | None:
    """Name what keeps weights from being a softmax, turned around or not."""
    value = plain(value)
    turned = value.producer("transpose")
    return nearly_softmax(turned.operands[0] if turned is not None else value)


@dataclass(frozen=True, slots=True)
class _Weights:
    """A softmax, perhaps with a slot more that is cut off again.

    Attributes:
        scores: the operand.
        order: the operand's dimension of each dimension of the weights.
        sinks: the scores of the slot more.
    """

    scores: Value
    order: tuple[int, ...]
    sinks: Over | None = None


def _weights(value: Value) -> _Weights | None:
    value = plain(value)
    order = tuple(range(value.type.rank))
    turned = value.producer("transpose")
    if turned is not None:
        value, order = plain(turned.operands[0]), turned.attrs.integers("permutation")
    cut = value.producer("slice")
    masked = softmax_of(cut.operands[0] if cut is not None else value)
    if masked is None or cut is None:
        return _Weights(masked, order) if masked is not None else None
    joined = plain(masked).producer("concatenate")
    last = masked.type.rank - 1
    if joined is None or len(joined.operands) != 2 or joined.attrs.integer("dimension") != last:
        return None
    scores, sinks = joined.operands
    if (
        sinks.shape[last] != 1
        or value.shape != scores.shape
        or any(cut.attrs.dims("start_indices"))
    ):
        return None
    source, dims = spread(plain(sinks))
    return _Weights(scores, order, Over(source, dims))


def attention_of(
    op: Op, b: Builder, parts: Sequence[Part], sinks: Over | None = None
) -> Sequence[Value] | NoMatch:
    """Build the composite: operands in its layout, and its result in the layout of ``op``.

    Args:
        op: the product whose result is replaced.
        b: the builder.
        parts: parts of the cache positions in order; all of one query.
        sinks: scores of a slot without a value.
    """
    sides = [_of_one_type(dims) for _, dims in parts]
    known = [side for side in sides if side is not None]
    if len(known) < len(parts) or len({side[0].value.dtype for side in known}) > 1:
        return no_match("queries, keys and values are of different types", op.result, depth=15)
    (scores, dims), query = parts[0], known[0][0]
    if sinks is not None and not _lies_over(sinks, dims, (HEADS, GROUP)):
        return no_match("the slot without a value differs in more than heads", op.result, depth=16)
    q = _ordered(b, query, _QUERY)
    rows, tokens, heads, group, size = q.shape
    q = b.reshape(q, (rows, tokens, heads * group, size))
    for name, number in scores.steps:
        q = b.binary(name, q, b.broadcast_in_dim(b.convert(number, q.dtype), q.shape, []))
    # The composite divides by the cap itself.
    q = q * scores.cap if scores.cap and not scores.scaled else q
    pairs = [[_ordered(b, side, _KEYS) for side in part[1:]] for part in known]
    if len({_once(value).shape[2] for pair in pairs for value in pair}) == 1:
        pairs = [[_once(value) for value in pair] for pair in pairs]
    k, v = (_joined(b, values, 1) for values in zip(*pairs, strict=True))
    if k.shape[:3] != v.shape[:3]:
        return no_match("keys and values differ in slots or heads", v, depth=17)
    build = _Terms(b, (rows, heads, group, tokens), [pair[0].shape[1] for pair in pairs])
    mask, terms = build.mask(parts), [*build.bias(parts), *build.sinks(sinks, dims)]
    made = b.attention(q, k, v, mask, scores.factor, *terms, softcap=scores.cap)
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


def _lies_over(over: Over, dims: Dims, roles: Sequence[str]) -> bool:
    """Test whether a value is the same along all dimensions but those of ``roles``."""
    inside = {dims.scores[role] for role in roles if role in dims.scores}
    sizes = zip(over.at, over.value.shape, strict=True)
    return all(size == 1 for dim, size in sizes if dim not in inside)


class _Terms:
    """Builds the operands of attention that lie over its scores.

    Args:
        b: the builder.
        outer: the sizes of rows, key-value heads, group and tokens.
        slots: of each part.
    """

    def __init__(self, b: Builder, outer: Sequence[Dim], slots: Sequence[Dim]) -> None:
        self.b = b
        self.rows, self.heads, self.group, self.tokens = outer
        self.slots = slots

    def mask(self, parts: Sequence[Part]) -> Value:
        """The conjunction of the masks: [B,S,C], or [B,H,S,C] if one differs from head to head."""
        shared = all(_lies_over(m, dims, _SHARED) for scores, dims in parts for m in scores.masks)
        made: list[Value] = []
        for (scores, dims), slots in zip(parts, self.slots, strict=True):
            found: Value | None = None
            for over in scores.masks:
                mask = self._placed(over, dims, slots, shared=shared)
                mask = self.b.unary("not", mask) if over.hides else mask
                found = mask if found is None else self.b.binary("and", found, mask)
            if found is None:
                found = self.b.broadcast_in_dim(
                    self.b.literal(True, pred), self._shape(slots, shared=shared), []
                )
            made.append(found)
        return _joined(self.b, made, 2 if shared else 3)

    def bias(self, parts: Sequence[Part]) -> list[Value]:
        """The sum of the biases, f32 [B,H,S,C]; empty for none."""
        ((scores, dims), *_), slots = parts, self.slots[0]
        found: list[Value] = []
        for over in scores.biases:
            value = self.b.convert(over.value, f32)
            value = value if over.factor == 1 else value * over.factor
            bias = self._placed(replace(over, value=value), dims, slots, shared=False)
            found = [bias if not found else self.b.add(found[0], bias)]
        return found

    def sinks(self, sinks: Over | None, dims: Dims) -> list[Value]:
        """The scores of a slot without a value, f32 [H]; empty for none."""
        if sinks is None:
            return []
        b, roles = self.b, (HEADS, GROUP)
        each = _put(b, sinks, dims, roles, (self.heads, self.group))
        return [b.convert(b.reshape(each, (self.heads * self.group,)), f32)]

    def _shape(self, slots: Dim, *, shared: bool) -> tuple[Dim, ...]:
        heads = () if shared else (self.heads * self.group,)
        return (self.rows, *heads, self.tokens, slots)

    def _placed(self, over: Over, dims: Dims, slots: Dim, *, shared: bool) -> Value:
        """Broadcast a value to [B,S,C] or [B,H,S,C]."""
        if shared:
            return _put(self.b, over, dims, _SHARED, self._shape(slots, shared=True))
        shape = (self.rows, self.heads, self.group, self.tokens, slots)
        each = _put(self.b, over, dims, _PER_HEAD, shape)
        return self.b.reshape(each, self._shape(slots, shared=False))


def _put(b: Builder, over: Over, dims: Dims, roles: Sequence[str], shape: Sequence[Dim]) -> Value:
    """Broadcast a value to dimensions of these roles; it is the same along all others."""
    order = [dims.scores.get(role) for role in roles]
    return placed(b, over.value, over.at, order, shape)


def _once(value: Value) -> Value:
    """Undo the repetition of each key-value head for its query heads, in keys [B,C,H,D]."""
    inner, order = value, [0, 1, 2, 3]
    while (moved := inner.producer("transpose")) is not None:
        permutation = moved.attrs.integers("permutation")
        inner, order = moved.operands[0], [permutation[dim] for dim in order]
    source = _before_merge(inner, order[2]) or _before_broadcast(inner, order[2])
    if source is None:
        return value
    return source if order == [0, 1, 2, 3] else Builder.current().transpose(source, order)


def _before_merge(value: Value, at: int) -> Value | None:
    """Match heads repeated along a dimension after theirs, which is merged into it."""
    merged = value.producer("reshape")
    spread = merged.operands[0].producer("broadcast_in_dim") if merged is not None else None
    if spread is None or spread.result.type.rank != 5 or spread.operands[0].type.rank != 4:
        return None
    (source,) = spread.operands
    shape = spread.result.shape
    merges = (*shape[:at], value.shape[at], *shape[at + 2 :]) == value.shape
    kept = tuple(dim for dim in range(5) if dim != at + 1)
    return source if merges and spread.attrs.integers("dimensions") == kept else None


def _before_broadcast(value: Value, at: int) -> Value | None:
    """Match one head that all queries read, broadcast along the dimension ``at``."""
    op = value.producer("broadcast_in_dim")
    dims = [dim for dim in range(4) if dim != at]
    if op is None or [dim for dim in op.attrs.integers("dimensions") if dim != at] != dims:
        return None
    (source,) = op.operands
    once = (*value.shape[:at], 1, *value.shape[at + 1 :])
    if source.shape not in (once, tuple([once[dim] for dim in dims])):
        return None
    return Builder.current().reshape(source, once)
