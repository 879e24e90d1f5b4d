"""Slices as data: their bounds per dimension, and neighboring slices of one value joined again."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value

# Start, limit and stride of a slice in one dimension.
Bound = tuple[Dim, Dim, int]


def bounds(op: Op) -> list[Bound]:
    """Start, limit and stride of a slice, dimension by dimension."""
    starts, limits = op.attrs.dims("start_indices"), op.attrs.dims("limit_indices")
    strides = op.attrs.integers("strides") or (1,) * len(starts)
    return list(zip(starts, limits, strides, strict=True))


def cut(b: Builder, x: Value, cuts: Sequence[Bound]) -> Value:
    """A slice of ``x``, or ``x`` where that is all of it."""
    whole = zip(cuts, x.shape, strict=True)
    if all(cut == (0, size, 1) for cut, size in whole):
        return x
    strides = tuple([stride for _, _, stride in cuts])
    return b.op(
        "slice",
        x,
        start_indices=tuple([start for start, _, _ in cuts]),
        limit_indices=tuple([limit for _, limit, _ in cuts]),
        strides=() if all(stride == 1 for stride in strides) else strides,
    )


def join(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """The values one after the other along ``axis``, neighboring slices of one value as one."""
    return join_runs(b, runs_of_slices(values, axis), axis)


def runs_of_slices(values: Sequence[Value], axis: int) -> list[list[Value]]:
    """The values in order, grouped into runs of neighboring slices."""
    runs: list[list[Value]] = []
    for value in values:
        if runs and _adjacent(runs[-1][-1], value, axis):
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def join_runs(b: Builder, runs: Sequence[Sequence[Value]], axis: int) -> Value:
    """The values of :func:`runs_of_slices` along ``axis``: one slice per run."""
    parts = [_joined(b, run, axis) for run in runs]
    return parts[0] if len(parts) == 1 else b.concatenate(parts, axis)


def _adjacent(left: Value, right: Value, axis: int) -> bool:
    """True for two slices of one value, the second of which starts at the end of the first."""
    first, second = left.producer("slice"), right.producer("slice")
    if first is None or second is None or first.operands != second.operands:
        return False
    mine, other = bounds(first), bounds(second)
    (_, limit, step), (start, _, stride) = mine.pop(axis), other.pop(axis)
    return mine == other and step == stride == 1 and limit == start


def _joined(b: Builder, run: Sequence[Value], axis: int) -> Value:
    """One slice in place of a run of neighboring ones."""
    first, last = run[0].producer("slice"), run[-1].producer("slice")
    if len(run) == 1 or first is None or last is None:
        return run[0]
    cuts = bounds(first)
    cuts[axis] = (cuts[axis][0], bounds(last)[axis][1], 1)
    return cut(b, first.operands[0], cuts)
