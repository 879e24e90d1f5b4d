"""Dynamic slices and updates at constant indices become slices and concatenations."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match, rule


@rule("dynamic_slice")
def slice_at_constant(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``dynamic_slice(x, 3, 0)`` is a slice."""
    x, *starts = op.operands
    places = _places(x, starts, op.result)
    if places is None:
        return no_match("a start, or a size, is not known", op.operands[-1])
    limits = [start + size for start, size in zip(places, op.result.type.dims, strict=True)]
    return [b.op("slice", x, start_indices=tuple(places), limit_indices=tuple(limits), strides=())]


@rule("dynamic_update_slice")
def stacked(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Updates of one value that cover all of it, one beside the other, are a concatenation."""
    if not op.result.type.static:
        return no_match("its size is not known", op.result)
    parts: dict[int, Value] = {}
    axis: int | None = None
    covered, current = 0, op
    while True:
        base, update, *starts = current.operands
        places = _places(base, starts, update)
        if places is None:
            return no_match("a start is not known", current.operands[-1], depth=2)
        cut = [d for d, size in enumerate(update.type.dims) if size != base.type.dims[d]]
        if len(cut) != 1 or axis not in (None, cut[0]):
            return no_match("the updates do not lie along one dimension", update, depth=3)
        axis = cut[0]
        if places[axis] in parts:
            return no_match("a place is written twice", update, depth=4)
        parts[places[axis]] = update
        covered += update.type.dims[axis]
        if covered >= base.type.dims[axis]:
            break
        above = base.producer("dynamic_update_slice")
        if above is None:
            return no_match("a part of the value is not written", base, depth=5)
        current = above
    ordered = [parts[place] for place in sorted(parts)]
    ends = [place + parts[place].type.dims[axis] for place in sorted(parts)]
    if [0, *ends[:-1]] != sorted(parts) or ends[-1] != op.result.type.dims[axis]:
        return no_match("the updates overlap", op.result, depth=6)
    return [b.concatenate(ordered, axis) if len(ordered) > 1 else ordered[0]]


def _places(x: Value, starts: Sequence[Value], part: Value) -> list[int] | None:
    """Start of ``part`` in ``x`` per dimension, clamped as ``dynamic_slice`` does."""
    if not (x.type.static and part.type.static):
        return None
    found: list[int] = []
    for start, size, taken in zip(starts, x.type.dims, part.type.dims, strict=True):
        made = start.producer("constant")
        if made is None:
            return None
        (number,) = made.attrs.literal("value").values()
        found.append(min(max(int(number), 0), size - taken))
    return found
