"""ATen's pooling: the largest or the mean of each window of the last dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod

from graphgen.errors import GraphgenError
from graphgen.ir import Value
from graphgen.ir.dtype import lowest, s64
from graphgen.lowering.aten.call import AtenCall, AtenResult, aten, wide


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows over the last dimensions, one number for each of them.

    Attributes:
        sizes: elements of a window.
        strides: from one window to the next.
        dilations: from one element of a window to the next.
        edges: what is padded before and after, for ``ceil_mode`` more than the call says.
        counts: of windows.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]

    def padded(self, c: AtenCall, x: Value, number: Value) -> Value:
        """Pad ``x``; a negative number of elements after it cuts off what no window reads."""
        outer = [0] * (x.type.rank - len(self.sizes))
        low, high = ([*outer, *(edge[side] for edge in self.edges)] for side in (0, 1))
        return c.b.pad(x, number, low, high)

    def combined(self, c: AtenCall, padded: Value, start: Value, kind: str) -> Value:
        """Reduce each window of what is padded already; without dilations."""
        outer = [1] * (padded.type.rank - len(self.sizes))
        return c.b.reduce_window(
            padded, start, kind, (*outer, *self.sizes), (*outer, *self.strides)
        )

    def element(self, c: AtenCall, padded: Value, place: Sequence[int]) -> Value:
        """The element at this place of every window."""
        rank = padded.type.rank
        first = rank - len(self.sizes)
        starts, limits, strides = [0] * rank, list(padded.type.dims), [1] * rank
        for index, offset in enumerate(place):
            dim, stride = first + index, self.strides[index]
            starts[dim] = offset * self.dilations[index]
            limits[dim] = starts[dim] + (self.counts[index] - 1) * stride + 1
            strides[dim] = stride
        return c.b.op(
            "slice",
            padded,
            start_indices=tuple(starts),
            limit_indices=tuple(limits),
            strides=tuple(strides),
        )


def _windows(c: AtenCall, dims: int) -> _Windows:
    sizes = _each(c, "kernel_size", dims, 1)
    strides = _each(c, "stride", dims, 0)
    strides = strides if all(strides) else sizes
    pads, dilations = _each(c, "padding", dims, 0), _each(c, "dilation", dims, 1)
    given, made = c.value("self").shape[-dims:], c.shape[-dims:]
    counts = tuple([size for size in made if isinstance(size, int)])
    known = [size for size in given if isinstance(size, int)]
    if len(counts) < dims or len(known) < dims:
        raise GraphgenError("GG0106", f"{c.op} of a size that is not known")
    edges: list[tuple[int, int]] = []
    for i in range(dims):
        reach = (counts[i] - 1) * strides[i] + dilations[i] * (sizes[i] - 1) + 1
        edges.append((pads[i], reach - known[i] - pads[i]))
    return _Windows(sizes, strides, dilations, tuple(edges), counts)


def _each(c: AtenCall, name: str, dims: int, default: int) -> tuple[int, ...]:
    """One number a dimension; a single one is for all."""
    given = c.given.get(name)
    found = [given] if isinstance(given, int) else [i for i in c.items(name) if isinstance(i, int)]
    found = found or [default]
    return tuple(found if len(found) == dims else found * dims)


@aten("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def _largest(c: AtenCall) -> AtenResult:
    """The largest of each window, NaN before all, and its place among the elements of a plane."""
    x, dims = c.value("self"), 3 if "3d" in c.op else 2
    windows = _windows(c, dims)
    plane = x.type.dims[-dims:]
    shape = (1,) * (x.type.rank - dims) + plane
    places = c.b.reshape(c.b.iota(s64, (prod(plane),), 0), shape)
    low = -inf if x.dtype.is_float else lowest(x.dtype)
    padded = windows.padded(c, x, c.full(low, x.dtype))
    numbers = windows.padded(c, places, c.full(-1, s64))
    best = place = None
    for offsets in product(*map(range, windows.sizes)):
        value = windows.element(c, padded, offsets)
        here = c.spread(windows.element(c, numbers, offsets), value.shape)
        if best is None or place is None:
            best, place = value, here
            continue
        # Padding is never chosen, also where every element is -inf.
        nowhere = c.b.compare(place, c.full(0, s64, place.shape), "LT")
        taken = c.b.or_(c.b.compare(value, best, "GT"), nowhere)
        if x.dtype.is_float:
            taken = c.b.or_(taken, c.b.compare(value, value, "NE"))
        best, place = c.b.select(taken, value, best), c.b.select(taken, here, place)
    assert best is not None
    assert place is not None
    if set(windows.dilations) == {1}:
        best = windows.combined(c, padded, c.full(low, x.dtype), "maximum")
    return [best, place]


@aten("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _mean(c: AtenCall) -> AtenResult:
    """The sum of each window by its count, in which padding counts where the call says so."""
    x, dims = c.value("self"), int(c.op[len("avg_pool")])
    windows, dtype = _windows(c, dims), wide(c.dtype)
    zero = c.full(0, dtype)
    padded = windows.padded(c, c.b.convert(x, dtype), zero)
    total = windows.combined(c, padded, zero, "add")
    divisor = c.integer("divisor_override")
    if divisor:
        count = c.full(float(divisor), dtype, total.shape)
    else:
        count = c.spread(_counts(c, windows, x), total.shape)
    return c.b.convert(c.b.divide(total, count), c.dtype)


def _counts(c: AtenCall, windows: _Windows, x: Value) -> Value:
    """Count the elements of each window; what ``ceil_mode`` adds at the end never counts."""
    dtype, dims = wide(c.dtype), len(windows.sizes)
    if not any(low or high > 0 for low, high in windows.edges):
        return c.full(float(prod(windows.sizes)), dtype)
    plane, zero = x.type.dims[-dims:], c.full(0, dtype)
    edges = windows.edges
    if c.flag("count_include_pad", True):
        pads = _each(c, "padding", dims, 0)
        plane = tuple([size + 2 * pad for size, pad in zip(plane, pads, strict=True)])
        edges = tuple([(0, high - pad) for (_, high), pad in zip(edges, pads, strict=True)])
    ones = c.full(1, dtype, plane)
    low, high = ([edge[side] for edge in edges] for side in (0, 1))
    return windows.combined(c, c.b.pad(ones, zero, low, high), zero, "add")


@aten("adaptive_avg_pool1d.default", "_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def _parts(c: AtenCall) -> AtenResult:
    """The mean of parts of equal size (GG0502 for sizes that do not divide)."""
    x = c.value("self")
    dims = len(c.items("output_size"))
    outer, given, made = x.type.rank - dims, x.type.dims[-dims:], c.type.dims[-dims:]
    if any(size % parts for size, parts in zip(given, made, strict=True)):
        raise GraphgenError("GG0502", f"{c.op} of {x.type.text} to {c.type.text} is not read")
    shape = list(x.type.dims[:outer])
    for size, parts in zip(given, made, strict=True):
        shape += [parts, size // parts]
    dtype = wide(c.dtype)
    split = c.b.reshape(c.b.convert(x, dtype), shape)
    total = c.b.reduce(split, [outer + 2 * i + 1 for i in range(dims)], "add")
    count = float(prod(given) // prod(made))
    return c.b.convert(c.b.divide(total, c.full(count, dtype, total.shape)), c.dtype)
