"""Roles of the dimensions of queries, keys, values and scores: rows, tokens, heads, slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.ir import Dim, Op, Value
from graphgen.ir.dims import product
from graphgen.ops import Trait, has_trait
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.gqa.sink_gather import result_dims
from graphgen.passes.raising.softmax import Scores

# Roles of dimensions, in the order of the composite; ``group`` counts the query heads of one
# key-value head.
ROWS, TOKENS, SLOTS, HEADS, GROUP, SIZE = "rows", "tokens", "slots", "heads", "group", "size"


@dataclass(frozen=True, slots=True)
class AttentionOperand:
    """One operand of a product.

    Attributes:
        value: the operand.
        dims: its dimension of each role; a missing role has size 1.
    """

    value: Value
    dims: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Dims:
    """The layout of one attention.

    Attributes:
        query, keys, values: the operands.
        scores: the dimension of the scores of each role.
        result: the roles of the result's dimensions.
    """

    query: AttentionOperand
    keys: AttentionOperand
    values: AttentionOperand
    scores: Mapping[str, int]
    result: tuple[str, ...]


def dims_of(op: Op, weights: int, order: Sequence[int], scores: Scores) -> Dims | NoMatch:
    """Find the layout of the attention whose second product is ``op``.

    Args:
        op: the product of weights and values.
        weights: the index of the operand of weights.
        order: the dimension of the softmax of each of their dimensions.
        scores: the operand of the softmax.
    """
    product_ = scores.dot.op
    assert product_ is not None
    places = result_dims(product_)
    own = [dict(places[dim]) for dim in scores.order]
    last = len(own) - 1
    if len(own[last]) != 1:
        return no_match("the softmax is not over the slots", scores.dot, depth=9)
    (key_side,) = own[last]
    query = [place.get(1 - key_side) for place in own]
    keys = [place.get(key_side) for place in own]
    if any(dim is not None and query[i] is None for i, dim in enumerate(keys[:-1])):
        return no_match(
            "keys have a dimension that queries have not", product_.operands[key_side], depth=10
        )
    roles = _roles(product_, 1 - key_side, query, keys)
    if isinstance(roles, NoMatch):
        return roles
    return _with_values(op, weights, order, product_, key_side, roles, query, keys)


def _roles(
    op: Op, query_side: int, query: Sequence[int | None], keys: Sequence[int | None]
) -> list[str] | NoMatch:
    """The role of each dimension of the scores."""
    last = len(query) - 1
    for side, dims in ((query_side, query), (1 - query_side, keys)):
        heads = head_dims(op.operands[side])
        if heads is None:
            continue
        roles = [_role(dims[i] in heads, keys[i] is not None) for i in range(last)]
        if len(set(roles)) == last and (side == query_side or GROUP not in roles):
            return [*roles, SLOTS]
    return no_match(
        "the dimension of the queries that holds heads is not known",
        op.operands[query_side],
        depth=11,
    )


def _role(is_head: bool, is_shared: bool) -> str:
    """Decide the role of a dimension of the scores: it holds heads, and keys have it too."""
    if is_shared:
        return HEADS if is_head else ROWS
    return GROUP if is_head else TOKENS


def _with_values(
    op: Op,
    weights: int,
    order: Sequence[int],
    product_: Op,
    key_side: int,
    roles: Sequence[str],
    query: Sequence[int | None],
    keys: Sequence[int | None],
) -> Dims | NoMatch:
    """The dimensions of the values and of the result, from those of the weights."""
    sides = ("lhs", "rhs")
    summed = [op.attrs.integers(f"{side}_contracting_dims") for side in sides]
    if len(summed[weights]) != 1 or roles[order[summed[weights][0]]] != SLOTS:
        return no_match("the softmax is not over the slots", op.operands[weights], depth=12)
    values: dict[str, int] = {SLOTS: summed[1 - weights][0]}
    result: list[str] = []
    for places in result_dims(op):
        found = dict(places)
        role = roles[order[found[weights]]] if weights in found else SIZE
        if 1 - weights in found:
            values[role] = found[1 - weights]
        result.append(role)
    shared = {role for role, dim in zip(roles, keys, strict=True) if dim is not None}
    if result.count(SIZE) != 1 or set(values) != {*shared, SIZE}:
        return no_match(
            "values have other dimensions than keys", op.operands[1 - weights], depth=13
        )
    contracted = [product_.attrs.integers(f"{side}_contracting_dims") for side in sides]
    if len(contracted[0]) != 1:
        return no_match(
            "queries and keys are summed over several dimensions", product_.result, depth=14
        )
    queries = {role: dim for role, dim in zip(roles, query, strict=True) if dim is not None}
    known = {role: dim for role, dim in zip(roles, keys, strict=True) if dim is not None}
    return Dims(
        AttentionOperand(
            product_.operands[1 - key_side], {**queries, SIZE: contracted[1 - key_side][0]}
        ),
        AttentionOperand(product_.operands[key_side], {**known, SIZE: contracted[key_side][0]}),
        AttentionOperand(op.operands[1 - weights], values),
        {role: dim for dim, role in enumerate(roles)},
        tuple(result),
    )


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
