"""Raise cache updates: a select between the new token and the cache, by slot."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.analysis.pattern.see_through import spread
from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.caches.cache import is_kept, kv_update
from graphgen.passes.raising.caches.index_analysis import IndexPart, counts_along
from graphgen.passes.raising.matchers import either_way, filled, without


@rule("select")
def raise_chosen_slot(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``where(slots == positions, new, cache)`` is an update of a cache."""
    mask, new, cache = op.operands
    if op.result.type.rank != 4:
        return NoMatch("the buffer written to does not have four dimensions", op.result)
    if not is_kept(cache):
        return NoMatch("the buffer written to is not an argument, so nothing is kept", cache)
    equal, dims = spread(mask)
    compare = equal.producer("compare")
    if compare is None or compare.attrs.text("direction") != "EQ":
        return NoMatch("the mask is not an equality of slots and positions", mask)
    found = _slot_of(compare, dims)
    if found is None:
        return no_match("neither operand counts slots while the other gives positions", equal)
    slots, positions = found
    uneven = [at for dim, at in enumerate(positions.at) if _size(positions, dim) != 1]
    if len(uneven) > 1 or slots in uneven:
        return no_match("the slot differs in more than the row", equal, depth=2)
    others = [dim for dim in range(4) if dim != slots]
    rows = uneven[0] if uneven else others[0]
    token = without(b, new, others)
    if token is None:
        return no_match("each slot would be given another token", new, depth=3)
    heads, size = (dim for dim in others if dim != rows)
    whole = filled(b, token, [cache.shape[dim] for dim in others])
    turned = b.transpose(whole, [others.index(dim) for dim in (rows, heads, size)])
    shape = (cache.shape[rows], 1)
    tokens = b.reshape(turned, (*shape, cache.shape[heads], cache.shape[size]))
    at = positions.built(b, (rows, slots), shape)
    seq_ids = b.iota(s32, shape[:1], 0)
    return [kv_update(b, cache, (rows, slots, heads, size), tokens, seq_ids, at, in_place=True)]


def _size(part: IndexPart, dim: int) -> object:
    return part.value.shape[dim] if part.value is not None else 1


def _slot_of(compare: Op, dims: tuple[int, ...]) -> tuple[int, IndexPart] | None:
    """Match ``slots == positions``: the dimension that counts slots, and the positions."""
    for slots, positions in either_way(compare):
        if not slots.dtype.is_integer:
            return None
        counted = counts_along(IndexPart(slots, dims))
        source, own = spread(positions)
        if counted is not None:
            return counted, IndexPart(source, tuple(dims[dim] for dim in own))
    return None
