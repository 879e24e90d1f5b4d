"""Axes of queries, keys, values and scores: rows, tokens, heads, slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Dim, Op, Value
from graphgen.ir.dims import product
from graphgen.ops import Trait, has_trait
from graphgen.passes.raising.axes import UnlikeError, product_of
from graphgen.passes.raising.row_order import Axis, Followed
from graphgen.passes.raising.softmax import Scores


@dataclass(frozen=True, slots=True)
class AttentionPart:
    """Attention to some slots: its operands, and the axis of each role; of size 1 if none has.

    Attributes:
        scores: the operand of the softmax.
        query, keys, values: the operands.
        rows, tokens, slots, size: of the operands.
        heads: of keys and values, or of queries if those are repeated for them.
        group: the query heads of one key-value head.
        width: the size of a head of the values.
    """

    scores: Scores
    query: Followed
    keys: Followed
    values: Followed
    rows: Axis
    tokens: Axis
    heads: Axis
    group: Axis
    slots: Axis
    size: Axis
    width: Axis


def part_of(
    scores: Scores,
    values: Followed,
    slots: Axis,
    result: Followed,
    other: Scores | None = None,
) -> AttentionPart:
    """Find the axes of attention from its result (:class:`UnlikeError`).

    Args:
        scores: the operand of the softmax.
        values: what they are multiplied by.
        slots: the axis of the softmax.
        result: the value that the composite replaces.
        other: the scores of the same query that the softmax is over as well, if there are such.
    """
    dot, found = scores.dot.value, product_of(scores.dot)
    read = other.dot.value.op.operands if other is not None and other.dot.value.op else ()
    sides = [
        (query, keys)
        for query, keys in (found.either() if found is not None else ())
        # One slot has an axis in neither; the query is then what other keys are multiplied by.
        if slots in keys.axes or (slots.size == 1 and query.value in read)
    ]
    if found is None or len(sides) != 1:
        raise UnlikeError("the softmax is not over the slots", dot, 9)
    ((query, keys),) = sides
    if not {*keys.axes} <= {*query.axes, slots}:
        raise UnlikeError("keys have a dimension that queries have not", keys.value, 10)
    shared = [axis for axis in keys.axes if axis in query.axes and axis not in found.summed]
    own = [axis for axis in query.axes if axis not in keys.axes]
    roles = _roles(query, keys, shared, own)
    width = [axis for axis in values.axes if axis not in (*shared, slots)]
    if len(width) > 1 or {*values.axes} - {slots} != {*shared, *width}:
        raise UnlikeError("values have other dimensions than keys", values.value, 13)
    if {*result.axes} != {*shared, *own, *width}:
        raise UnlikeError("the result has other dimensions than queries", result.value, 13)
    if len(found.summed) > 1:
        raise UnlikeError("queries and keys are summed over several dimensions", dot, 14)
    size, last = [*found.summed, Axis(1)][0], [*width, Axis(1)][0]
    return AttentionPart(scores, query, keys, values, *roles, slots=slots, size=size, width=last)


def _roles(
    query: Followed, keys: Followed, shared: Sequence[Axis], own: Sequence[Axis]
) -> tuple[Axis, Axis, Axis, Axis]:
    """Find the axes of rows, tokens, heads and groups, by those that hold heads."""
    for side in (query, keys):
        dims = head_dims(side.value)
        heads = [axis for dim in dims or () for axis in side.dims[dim]]
        # Keys tell nothing about the axes that queries alone have.
        known = dims is not None and (side is query or len(own) < 2)
        roles = [
            [axis for axis in axes if (axis in heads) == is_head]
            for axes, is_head in ((shared, False), (own, False), (shared, True), (own, True))
        ]
        if known and all(len(axes) < 2 for axes in roles):
            rows, tokens, each, group = ((axes or [Axis(1)])[0] for axes in roles)
            return rows, tokens, each, group
    reason = "the dimension of the queries that holds heads is not known"
    raise UnlikeError(reason, query.value, 11)


def head_dims(value: Value) -> frozenset[int] | None:
    """Find the dimensions of ``value`` that count heads, from the op that split them off."""
    op = value.op
    if op is None:
        return None
    if op.name in ("kv_update", "cache_read"):
        return frozenset((2,))
    if op.name == "transpose":
        inner, permutation = head_dims(op.operands[0]), op.attrs.integers("permutation")
        return inner and frozenset(i for i, dim in enumerate(permutation) if dim in inner)
    if op.name == "reshape":
        return _through_reshape(op)
    if op.name in ("rope", "rms_norm", "layer_norm", "slice", "concatenate"):
        return head_dims(op.operands[0])
    if op.name == "broadcast_in_dim":
        inner, dims = head_dims(op.operands[0]), op.attrs.integers("dimensions")
        return inner and frozenset(dims[dim] for dim in inner)
    if has_trait(op, Trait.ELEMENTWISE):
        own = [v for v in op.operands if v.shape == value.shape and not _is_spread(v)]
        return head_dims(own[0]) if own else None
    return None


def _is_spread(value: Value) -> bool:
    return value.producer("broadcast_in_dim") is not None


def _through_reshape(op: Op) -> frozenset[int] | None:
    """Map heads through a reshape: split off features, or mapped from the operand's heads."""
    (source,) = op.operands
    groups = _groups(source.shape, op.result.shape)
    if groups is None:
        return None
    before, after = groups[-1]
    shape = op.result.shape
    features = [dim for dim in before if source.shape[dim] != 1]
    if len(features) == 1 and len(after) > 1 and head_dims(source) is None:
        return frozenset(dim for dim in after[:-1] if shape[dim] != 1) or frozenset(after[:-1])
    inner = head_dims(source)
    if inner is None:
        return None
    found = [dims for own, dims in groups if any(dim in inner for dim in own)]
    return frozenset(dim for dims in found for dim in dims if shape[dim] != 1)


def _groups(
    before: Sequence[Dim], after: Sequence[Dim]
) -> list[tuple[list[int], list[int]]] | None:
    """Group the dimensions of two shapes by equal products, from left to right."""
    groups: list[tuple[list[int], list[int]]] = []
    left, right = list(range(len(before))), list(range(len(after)))
    while left or right:
        own: list[int] = [left.pop(0)] if left else []
        other: list[int] = [right.pop(0)] if right else []
        while product([before[i] for i in own]) != product([after[i] for i in other]):
            a, b = product([before[i] for i in own]), product([after[i] for i in other])
            if not isinstance(a, int) or not isinstance(b, int):
                return None
            if (a < b and not left) or (b < a and not right):
                return None
            (own if a < b else other).append((left if a < b else right).pop(0))
        groups.append((own, other))
    return groups
