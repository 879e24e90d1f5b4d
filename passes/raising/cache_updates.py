"""Raise updates of caches of all layers in one tensor, a layer at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.cache import (
    Windows,
    is_kept,
    kv_update,
    planned,
    update,
    updated,
    windows_of,
)
from graphgen.passes.raising.index_analysis import IndexPart, counts_along
from graphgen.passes.raising.matchers import either_way, placed
from graphgen.pattern.see_through import peeled, spread


@rule("scatter", "dynamic_update_slice")
def write_of_layer(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A layer's whole cache put into that of all layers is joined with the others."""
    windows = _stacked(op)
    if isinstance(windows, NoMatch):
        return windows
    free = [d for d, size in enumerate(windows.sizes) if size != windows.cache.shape[d]]
    place = windows.starts[free[0]].known() if len(free) == 1 else None
    whole = all(
        windows.clamped or part.known() == 0
        for dim, part in enumerate(windows.starts)
        if dim not in free
    )
    if place is None or not whole or windows.sizes[free[0]] != 1:
        return no_match("it does not write one layer as a whole", windows.cache, depth=3)
    size = windows.shape[free[0]]
    if not isinstance(size, int) or not 0 <= place < size:
        return no_match("the layer is outside the cache", windows.cache, depth=4)
    if any(windows.new.shape[dim] != 1 for dim in windows.batch):
        return no_match("it writes several layers", windows.new, depth=5)
    return _joined(b, windows.cache, free[0], place, windows.new)


@rule("scatter", "dynamic_update_slice")
def raise_layer_update(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Tokens written into the cache of one layer, where all layers have one tensor."""
    windows = _stacked(op)
    if isinstance(windows, NoMatch):
        return windows
    cache = windows.cache
    layers = [
        dim
        for dim, part in enumerate(windows.starts)
        if windows.sizes[dim] == 1 and cache.shape[dim] != 1 and part.known() is not None
    ]
    if not layers or layers[0] != 0:
        return no_match("the layer that it writes is not known", cache, depth=3)
    place = windows.starts[0].known()
    assert place is not None
    size = cache.shape[0]
    if not isinstance(size, int) or not 0 <= place < size:
        return no_match("the layer is outside the cache", cache, depth=4)
    inner = replace(
        windows,
        shape=cache.shape[1:],
        sizes=windows.sizes[1:],
        starts=windows.starts[1:],
        inner=windows.inner[1:],
    )
    plan = planned(inner)
    if isinstance(plan, NoMatch):
        return plan.after(4)
    part = b.reshape(b.slice_dim(cache, 0, place, place + 1), cache.shape[1:])
    return _joined(b, cache, 0, place, update(b, replace(inner, cache=part), *plan)[0])


def _stacked(op: Op) -> Windows | NoMatch:
    if op.result.type.rank != 5:
        return NoMatch("the buffer written to does not have five dimensions", op.result)
    return windows_of(op)


def _joined(b: Builder, cache: Value, dim: int, place: int, new: Value) -> Sequence[Value]:
    """Concatenate the layers before ``place``, the new one, and those after it."""
    size = cache.shape[dim]
    shape = [1 if other == dim else n for other, n in enumerate(cache.shape)]
    parts = [b.slice_dim(cache, dim, 0, place)] if place else []
    parts.append(b.reshape(new, shape))
    if place + 1 != size:
        parts.append(b.slice_dim(cache, dim, place + 1, size))
    return [b.concatenate(parts, dim)]


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
    token, places = peeled(new, (0, 1, 2, 3))
    if slots in places and token.shape[places.index(slots)] != 1:
        return no_match("each slot would be given another token", new, depth=3)
    heads, size = (dim for dim in others if dim != rows)
    shape = (cache.shape[rows], 1)
    order = (rows, None, heads, size)
    whole = (*shape, cache.shape[heads], cache.shape[size])
    tokens = b.convert(placed(b, token, places, order, whole), new.dtype)
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
