"""Raise updates of caches of all layers in one tensor, a layer at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.caches.cache import Windows, planned, update, windows_of


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
