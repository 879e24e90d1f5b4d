"""Layouts through a reshape of one rank's part, whose shapes do not say all of it.

A rank that has one of eight heads reshapes ``[1,1,64]`` to ``[1,1,1,64]``: the axes may belong to
the 1, as here, or to the 64. Both are given, the likelier of most reshapes first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from graphgen.ir import Op, Sharding, sharding
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.spec.nominal_sizes import nominal

# The layout of a value that differs from rank to rank in another way than by its parts.
BY_RANK = None
Layout = Sharding | None


def layout_of(dims: Sequence[Axes], partial: Sequence[str] = (), kind: str = "add") -> Layout:
    """A layout, if no axis is used twice."""
    axes = [*itertools.chain.from_iterable(dims), *partial]
    return sharding(dims, partial, kind) if len(set(axes)) == len(axes) else BY_RANK


def reshaped(op: Op, layout: Sharding) -> list[Layout]:
    """The layouts that the result of a reshape can have; two where the shapes leave it open.

    Args:
        op: a reshape; symbols have a nominal size.
        layout: of its operand.
    """
    before = [nominal(size) for size in op.operands[0].type.shape]
    after = [nominal(size) for size in op.results[0].type.shape]
    if math.prod(before) != math.prod(after):
        return [BY_RANK]
    outer: list[Axes] = [() for _ in after]
    inner: list[Axes] = [() for _ in after]
    for ours, theirs in _blocks(before, after):
        cut = [dim for dim in ours if layout.dims[dim]]
        if not cut:
            continue
        leading = [dim for dim in ours if before[dim] == 1 and dim < cut[0]]
        if len(cut) > 1 or not theirs or any(before[d] != 1 for d in ours if d < cut[0]):
            return [BY_RANK]
        axes = layout.dims[cut[0]]
        if len(ours) == len(theirs):
            places = [theirs[len(leading)]] * 2
        else:
            first = next((dim for dim in theirs if after[dim] != 1), theirs[-1])
            places = [first, max(first - 1, theirs[0])]
        outer[places[0]], inner[places[1]] = axes, axes
    made = [layout_of(dims, layout.partial, layout.kind) for dims in (outer, inner)]
    return made if made[0] != made[1] else made[:1]


def _blocks(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest runs of dimensions of equal size on both sides; a 1 goes with what follows."""
    ours, theirs = list(range(len(before))), list(range(len(after)))
    while ours or theirs:
        left, right = _until_larger(ours, before), _until_larger(theirs, after)
        while (a := math.prod(before[d] for d in left)) != (
            b := math.prod(after[d] for d in right)
        ):
            side, rest, grown = (ours, before, left) if a < b else (theirs, after, right)
            grown += _until_larger(side[len(grown) :], rest)
        ours, theirs = ours[len(left) :], theirs[len(right) :]
        yield left, right


def _until_larger(dims: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The dimensions up to the first that is not 1; all, if the rest are."""
    for count, dim in enumerate(dims, 1):
        if sizes[dim] != 1:
            return list(dims[:count])
    return list(dims)
