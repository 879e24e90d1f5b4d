"""Raise cache updates: slices of the cache joined with new tokens between them."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.caches.cache import Windows, is_kept, updated
from graphgen.passes.raising.caches.index_analysis import IndexPart


@rule("concatenate")
def raise_joined_slices(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``concatenate(cache[:p], new, cache[p + n:])`` is an update of a cache at slot p."""
    dim = op.attrs.integer("dimension")
    if op.result.type.rank != 4:
        return NoMatch("the concatenation does not have four dimensions", op.result)
    cuts = [_cut(value, dim) for value in op.operands]
    fresh = [index for index, cut in enumerate(cuts) if cut is None]
    cache = next((cut[0] for cut in cuts if cut is not None), None)
    if cache is None or len(fresh) != 1:
        return NoMatch("it is not a new part between slices of a cache", op.result)
    if cache.shape != op.result.shape or not is_kept(cache):
        return NoMatch("the concatenation does not have the shape of the cache", op.result)
    if _depends(op.operands[fresh[0]], cache):
        return NoMatch("the new part is made of what is cut", op.result)
    starts = [0]
    for value, cut in zip(op.operands, cuts, strict=True):
        size = value.shape[dim]
        if not isinstance(size, int):
            return no_match("the number of slots is not known yet", value)
        if cut is not None and cut != (cache, starts[-1]):
            return no_match("a slice does not stay where it was", value, depth=2)
        starts.append(starts[-1] + size)
    return updated(b, _window(cache, op.operands[fresh[0]], dim, starts[fresh[0]]))


def _depends(value: Value, on: Value) -> bool:
    """Test whether a value is computed from another, as a rope of some elements is."""
    work, seen = [value], {value}
    while work:
        current = work.pop()
        if current is on:
            return True
        operands = current.op.operands if current.op is not None else ()
        work += [operand for operand in operands if operand not in seen]
        seen.update(operands)
    return False


def _cut(value: Value, dim: int) -> tuple[Value, int] | None:
    """Match a slice along ``dim`` alone: what is cut, and the first index."""
    op = value.producer("slice")
    if op is None or any(step != 1 for step in op.attrs.integers("strides")):
        return None
    starts = op.attrs.dims("start_indices")
    first, (x,) = starts[dim], op.operands
    others = [d for d in range(value.type.rank) if d != dim]
    whole = all(value.shape[d] == x.shape[d] and starts[d] == 0 for d in others)
    return (x, first) if whole and isinstance(first, int) else None


def _window(cache: Value, new: Value, dim: int, start: int) -> Windows:
    starts = [IndexPart(None, number=start if d == dim else 0) for d in range(4)]
    return Windows(
        cache, cache.shape, new, new.shape, tuple(starts), (), (0, 1, 2, 3), clamped=False
    )
