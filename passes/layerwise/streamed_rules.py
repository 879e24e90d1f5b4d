"""Evaluate ops on streamed arrays: the ops between a stored weight and its product.

An op that only moves, converts or scales elements gives a streamed array again; a product, a lookup
and a reduction give arrays in memory. Any other op gets its operands whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from graphgen.eval import COMPOSITES, RULES, Arithmetic, Array
from graphgen.eval.arithmetic import COMBINE
from graphgen.ir import Attrs, Op
from graphgen.ir.attrs import attrs_of
from graphgen.ops import Trait, has_trait
from graphgen.passes.layerwise.streamed_array import (
    MemoryMeter,
    Streamed,
    StreamedArray,
    converted,
    each_tile,
)

# Results of an op of which an operand is streamed; ``None`` where it needs its operands whole.
StreamedRule = Callable[[Arithmetic, Attrs, Sequence[Streamed]], "Sequence[Streamed] | None"]

_F64 = np.dtype(np.float64)


def streamed_step(
    op: Op, operands: Sequence[Streamed], how: Arithmetic, meter: MemoryMeter
) -> Sequence[Streamed] | None:
    """The results of ``op`` on one rank, made in tiles; ``None`` where no rule does that.

    Args:
        op: any op of one rank.
        operands: at least one of them is streamed.
        how: element types of floats.
        meter: counts what is made.
    """
    rule = _RULES.get(op.name)
    if rule is None and has_trait(op, Trait.ELEMENTWISE):
        rule = _elementwise(op.name)
    results = rule(how, op.attrs, operands) if rule is not None else None
    for result in results or ():
        if not isinstance(result, StreamedArray):
            meter.made(result)
    return results


def _elementwise(name: str) -> StreamedRule:
    def rule(
        how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]
    ) -> Sequence[Streamed] | None:
        streamed = [x for x in operands if isinstance(x, StreamedArray)]
        first = streamed[0]
        if any(x.axis != first.axis or x.shape != first.shape for x in streamed):
            return None

        def make(start: int, stop: int) -> Array:
            given = [_cut(x, first.axis, start, stop) for x in operands]
            if name == "convert" and given[0].dtype.kind != "b":
                element = attrs.element("dtype")
                if element.is_float and element.bits > 8:
                    return converted(given[0], how.dtype(element))
            if name in COMPOSITES:
                return COMPOSITES[name](how, attrs, given)[0]
            return RULES[name](how, attrs, given)

        return [first.derived(first.shape, first.axis, make)]

    return rule


def _cut(x: Streamed, axis: int, start: int, stop: int) -> Array:
    """Slices of an operand; all of a scalar."""
    if isinstance(x, StreamedArray):
        return x.make(start, stop)
    return x[(slice(None),) * axis + (slice(start, stop),)] if x.ndim > axis else x


def _only(operands: Sequence[Streamed]) -> StreamedArray | None:
    """Operand 0 where it is streamed and nothing else is."""
    first, *rest = operands
    alone = not any(isinstance(x, StreamedArray) for x in rest)
    return first if isinstance(first, StreamedArray) and alone else None


def _transpose(how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]) -> Sequence[Streamed]:
    x, order = operands[0], attrs.integers("permutation")
    assert isinstance(x, StreamedArray)
    shape = tuple(x.shape[dim] for dim in order)
    return [x.derived(shape, order.index(x.axis), lambda a, b: x.make(a, b).transpose(order))]


def _broadcast(
    how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]
) -> Sequence[Streamed] | None:
    x, shape = operands[0], _sizes(attrs, "shape")
    assert isinstance(x, StreamedArray)
    axis = attrs.integers("dimensions")[x.axis]
    if shape[axis] != x.shape[x.axis]:
        return None

    def make(start: int, stop: int) -> Array:
        sizes = (*shape[:axis], stop - start, *shape[axis + 1 :])
        cut = attrs_of({**attrs, "shape": sizes})
        return RULES["broadcast_in_dim"](how, cut, [x.make(start, stop)])

    return [x.derived(shape, axis, make)]


def _reshape(
    how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]
) -> Sequence[Streamed] | None:
    x, shape = operands[0], _sizes(attrs, "shape")
    assert isinstance(x, StreamedArray)
    if x.axis or not shape or 0 in shape:
        return None
    old, new = prod(x.shape[1:]), prod(shape[1:])

    def make(start: int, stop: int) -> Array:
        first, last = start * new // old, -(-stop * new // old)
        flat = x.make(first, last).reshape(-1)
        return flat[start * new - first * old : stop * new - first * old].reshape(-1, *shape[1:])

    return [x.derived(shape, 0, make)]


def _slice(how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]) -> Sequence[Streamed]:
    x = operands[0]
    assert isinstance(x, StreamedArray)
    starts, limits = _sizes(attrs, "start_indices"), _sizes(attrs, "limit_indices")
    return [_window(x, starts, limits, attrs.integers("strides") or (1,) * len(starts))]


def _dynamic_slice(
    how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]
) -> Sequence[Streamed] | None:
    x, sizes = _only(operands), _sizes(attrs, "slice_sizes")
    if x is None:
        return None
    given = [int(s) for s in operands[1:] if not isinstance(s, StreamedArray)]
    starts = [min(max(s, 0), n - size) for s, n, size in zip(given, x.shape, sizes, strict=True)]
    limits = [s + size for s, size in zip(starts, sizes, strict=True)]
    return [_window(x, starts, limits, (1,) * len(sizes))]


def _window(
    x: StreamedArray, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]
) -> StreamedArray:
    axis = x.axis
    bounds = list(zip(starts, limits, strides, strict=True))
    shape = tuple(-(-(limit - start) // stride) for start, limit, stride in bounds)
    offset, stride = starts[axis], strides[axis]
    rest = [slice(*bound) for bound in bounds]
    rest[axis] = slice(None, None, stride)

    def make(start: int, stop: int) -> Array:
        last = max(offset + (stop - 1) * stride + 1, offset + start * stride)
        return x.make(offset + start * stride, last)[tuple(rest)]

    return x.derived(shape, axis, make)


def _concatenate(
    how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]
) -> Sequence[Streamed] | None:
    streamed = [x for x in operands if isinstance(x, StreamedArray)]
    axis, joined = streamed[0].axis, attrs.integer("dimension")
    if any(x.axis != axis for x in streamed):
        return None
    sizes = [x.shape[joined] for x in operands]
    shape = list(streamed[0].shape)
    shape[joined] = sum(sizes)

    def beside(start: int, stop: int) -> Array:
        return np.concatenate([_cut(x, axis, start, stop) for x in operands], joined)

    def below(start: int, stop: int) -> Array:
        parts: list[Array] = []
        begin = 0
        for x, size in zip(operands, sizes, strict=True):
            low, high = max(start - begin, 0), min(stop - begin, size)
            if low < high:
                parts.append(_cut(x, axis, low, high))
            begin += size
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)

    return [streamed[0].derived(tuple(shape), axis, below if joined == axis else beside)]


def _pad(how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]) -> Sequence[Streamed] | None:
    x, fill = _only(operands), operands[1]
    if x is None or isinstance(fill, StreamedArray):
        return None
    low, high = list(attrs.integers("low")), list(attrs.integers("high"))
    if attrs.integers("interior") or min((*low, *high), default=0) < 0:
        return None
    shape = tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True))
    size = x.shape[x.axis]

    def make(start: int, stop: int) -> Array:
        first = min(max(start - low[x.axis], 0), size)
        last = min(max(stop - low[x.axis], 0), size)
        below, above = list(low), list(high)
        below[x.axis] = min(max(low[x.axis] - start, 0), stop - start)
        above[x.axis] = stop - start - (last - first) - below[x.axis]
        cut = attrs_of({**attrs, "low": tuple(below), "high": tuple(above)})
        return RULES["pad"](how, cut, [x.make(first, last), fill])

    return [x.derived(shape, x.axis, make)]


def _reduce(
    how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]
) -> Sequence[Streamed] | None:
    x = operands[0]
    assert isinstance(x, StreamedArray)
    axes = attrs.integers("dimensions")
    parts = [RULES["reduce"](how, attrs, [tile, *_whole(operands[1:])]) for _, _, tile in x.tiles()]
    if x.axis not in axes:
        place = x.axis - sum(1 for dim in axes if dim < x.axis)
        return [np.concatenate(parts, place)]
    kind = attrs.text("kind")
    if kind in ("add", "multiply"):
        return None
    combine = COMBINE[kind]
    out = parts[0]
    for part in parts[1:]:
        out = np.asarray(combine(out, part))
    return [out]


def _whole(operands: Sequence[Streamed]) -> list[Array]:
    return [x.whole() if isinstance(x, StreamedArray) else x for x in operands]


def _quantize(
    how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]
) -> Sequence[Streamed] | None:
    x = operands[0]
    assert isinstance(x, StreamedArray)
    axes, block = attrs.integers("dimensions"), attrs.integers("block")
    if x.axis in axes or (block and block[x.axis] > 1):
        return None

    def both(start: int, stop: int) -> Sequence[Array]:
        return COMPOSITES["quantize"](how, attrs, [x.make(start, stop)])

    values = x.derived(x.shape, x.axis, lambda start, stop: both(start, stop)[0])
    place = x.axis - sum(1 for dim in axes if dim < x.axis)
    size, step = x.shape[x.axis], x.step
    scales = [both(at, min(at + step, size))[1] for at in range(0, size, step)]
    return [values, np.concatenate(scales, place)]


def _dequantize(
    how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]
) -> Sequence[Streamed] | None:
    """Tiles of the values, each with the scale of the block that its elements are in."""
    x, facts = operands[0], _whole(operands[1:])
    if not isinstance(x, StreamedArray):
        return None
    axis, block = x.axis, list(attrs.integers("block"))
    each, block[axis] = block[axis], 1
    cut = attrs_of({**attrs, "block": tuple(block)})

    def make(start: int, stop: int) -> Array:
        of = np.arange(start, stop) // each
        own = [array.take(of, axis) for array in facts]
        return COMPOSITES["dequantize"](how, cut, [x.make(start, stop), *own])[0]

    return [x.derived(x.shape, axis, make)]


def _lookup(how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]) -> list[Array] | None:
    """Rows of a table, by ids that are clamped into it."""
    table = _only(operands)
    if table is None or table.axis:
        return None
    (ids,) = _whole(operands[1:])
    inside = np.clip(ids.astype(np.int64), 0, table.shape[0] - 1)
    return [table.picked(inside).reshape(*ids.shape, *table.shape[1:])]


def _gather(how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]) -> list[Array] | None:
    """Rows of a table: the same rows of a smaller one, by their places in it."""
    table = _only(operands)
    row_by_row = attrs.integers("start_index_map") == (0,) and _sizes(attrs, "slice_sizes")[0] == 1
    if table is None or table.axis or not row_by_row:
        return None
    (ids,) = _whole(operands[1:])
    inside = np.clip(ids.astype(np.int64), 0, table.shape[0] - 1)
    rows, places = np.unique(inside, return_inverse=True)
    return [RULES["gather"](how, attrs, [table.picked(rows), places.reshape(ids.shape)])]


def _dot_general(how: Arithmetic, attrs: Attrs, operands: Sequence[Streamed]) -> list[Array] | None:
    """A product with a streamed operand, tile by tile.

    Floats are summed in float64 and then rounded, so that the numbers do not depend on the tiles.
    Integers are as well: below 2^53 their sums are exact.
    """
    if attrs.integers("lhs_batch_dims"):
        return None
    side = 1 if isinstance(operands[1], StreamedArray) else 0
    x, other = operands[side], operands[1 - side]
    assert isinstance(x, StreamedArray)
    (original,) = _whole([other])
    dims = attrs.integers("lhs_contracting_dims"), attrs.integers("rhs_contracting_dims")
    mine, theirs = dims[side], dims[1 - side]
    wide = how.wide or _F64
    dense = converted(original, wide)
    free = [dim for dim in range(len(x.shape)) if dim not in mine]

    def product(start: int, stop: int) -> tuple[Array, bool]:
        tile = x.make(start, stop)
        against = dense
        if x.axis in mine:
            at = theirs[mine.index(x.axis)]
            against = dense[(slice(None),) * at + (slice(start, stop),)]
        made = np.tensordot(against, converted(tile, wide), (theirs, mine))
        return made, _is_wide(tile, how)

    parts: list[Array] = []
    floats = False
    for made, is_wide in each_tile(x, product):
        floats = floats or is_wide
        if x.axis in mine and parts:
            parts[0] += made
        else:
            parts.append(made)
    place = dense.ndim - len(theirs) + (0 if x.axis in mine else free.index(x.axis))
    out = parts[0] if len(parts) == 1 else np.concatenate(parts, place)
    if side == 0:
        count = dense.ndim - len(theirs)
        out = np.moveaxis(out, range(count), range(out.ndim - count, out.ndim))
    held = floats or _is_wide(original, how)
    return [out if held else out.astype(how.dtype(attrs.element("dtype")))]


def _is_wide(x: Array, how: Arithmetic) -> bool:
    """True for floats that are not rounded, which an integer type may carry too."""
    return how.carries(x)


def _sizes(attrs: Attrs, key: str) -> tuple[int, ...]:
    return tuple(dim for dim in attrs.dims(key) if isinstance(dim, int))


_RULES: dict[str, StreamedRule] = {
    "transpose": _transpose,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "reduce": _reduce,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "embedding": _lookup,
    "gather": _gather,
    "dot_general": _dot_general,
}
