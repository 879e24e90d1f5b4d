"""What each simple op computes, in NumPy: the reference every other execution is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphgen.eval.arithmetic import (
    FOUR_BITS,
    Arithmetic,
    Array,
    ends,
    is_integer,
    numpy_dtype,
    widened,
)
from graphgen.ir import Attrs

Rule = Callable[[Arithmetic, Attrs, Sequence[Array]], Array]


def _unary(function: Callable[[Array], Array]) -> Rule:
    def rule(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
        wide = x[0].astype(how.accumulator(x[0]))
        return np.asarray(function(wide), wide.dtype).astype(x[0].dtype)

    return rule


def _binary(function: Callable[[Array, Array], Array]) -> Rule:
    def rule(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
        return np.asarray(function(widened(x[0]), widened(x[1]))).astype(x[0].dtype)

    return rule


def logistic(x: Array) -> Array:
    """1 / (1 + e^-x) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _divide(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    a, b = map(widened, x)
    if not is_integer(a.dtype):
        return np.asarray(a / b).astype(x[0].dtype)
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    floor = a // safe
    # Rounded down, but toward zero is wanted; no abs, since that of the lowest integer overflows.
    quotient = floor + ((floor * safe != a) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, np.asarray(-1).astype(a.dtype), quotient).astype(x[0].dtype)


def _clamp(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    low, operand, high = map(widened, x)
    return np.asarray(np.minimum(np.maximum(operand, low), high)).astype(x[1].dtype)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _compare(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return _COMPARE[attrs.text("direction")](widened(x[0]), widened(x[1]))


def _convert(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    dtype = attrs.element("dtype")
    if dtype.is_integer and not (is_integer(x[0].dtype) or x[0].dtype.kind == "b"):
        unrounded = how.quantized(x[0], dtype)
        if unrounded is not None:
            return unrounded
        return _saturated(x[0].astype(np.float64), how.dtype(dtype))
    # Between 4-bit types only by way of a wider one.
    return how.round(widened(x[0]), dtype)


def _round_nearest_even(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return how.whole(widened(x[0])).astype(x[0].dtype)


def _saturated(x: Array, dtype: np.dtype[Any]) -> Array:
    """Floats as integers: toward zero, beyond the range its nearest end, NaN as 0."""
    low, high = ends(dtype)
    inside = (x > float(low)) & (x < float(high))
    out = np.where(inside, x, 0.0).astype(dtype)
    return np.where(x >= float(high), high, np.where(x <= float(low), low, out)).astype(dtype)


def _bitcast_convert(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    (operand,), dtype = x, attrs.element("dtype")
    if operand.dtype == how.wide:
        # With all floats wide, a float's bits are carried along as the float itself.
        return operand
    old, new = _nibbles(operand), dtype.bits // 4
    if new > old.shape[-1]:
        old = old.reshape(*operand.shape[:-1], new)
    parts = old.shape[-1] // new
    out = _from_nibbles(old.reshape(*old.shape[:-1], parts, new), numpy_dtype(dtype))
    return (out[..., 0] if parts == 1 else out).astype(how.dtype(dtype))


def _nibbles(x: Array) -> Array:
    """The bits of each element in fours, lowest first: [..., n]."""
    if x.dtype in FOUR_BITS:
        return x.astype(np.uint8)[..., None] & 15
    codes = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    halves = np.stack([codes & 15, codes >> 4], -1)
    return halves.reshape(*x.shape, 2 * x.dtype.itemsize)


def _from_nibbles(x: Array, dtype: np.dtype[Any]) -> Array:
    """What :func:`_nibbles` gave, as elements."""
    if dtype in FOUR_BITS:
        return x[..., 0].astype(dtype)
    codes = np.ascontiguousarray(x[..., 0::2] | x[..., 1::2] << 4).reshape(-1)
    return codes.view(dtype).reshape(x.shape[:-1])


def _constant(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return how.literal(attrs.literal("value"))


def static(attrs: Attrs, key: str) -> tuple[int, ...]:
    """A list of dimensions that are bound by the time a program is evaluated."""
    return tuple(dim for dim in attrs.dims(key) if isinstance(dim, int))


def _iota(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    shape, dimension = static(attrs, "shape"), attrs.integer("dimension")
    ramp = np.arange(shape[dimension]).astype(how.dtype(attrs.element("dtype")))
    view = [1] * len(shape)
    view[dimension] = shape[dimension]
    return np.broadcast_to(ramp.reshape(view), shape)


def _broadcast_in_dim(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    shape, dimensions = static(attrs, "shape"), attrs.integers("dimensions")
    view = [1] * len(shape)
    for size, target in zip(x[0].shape, dimensions, strict=True):
        view[target] = size
    order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
    return np.broadcast_to(x[0].transpose(order).reshape(view), shape)


def _reshape(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return x[0].reshape(static(attrs, "shape"))


def _transpose(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return x[0].transpose(attrs.integers("permutation"))


def _slice(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    starts, limits = static(attrs, "start_indices"), static(attrs, "limit_indices")
    strides = attrs.integers("strides") or (1,) * x[0].ndim
    return x[0][tuple(slice(*bounds) for bounds in zip(starts, limits, strides, strict=True))]


def _concatenate(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return np.concatenate(list(x), attrs.integer("dimension"))


def _pad(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    widths = list(zip(attrs.integers("low"), attrs.integers("high"), strict=True))
    shape = [lo + n + hi for n, (lo, hi) in zip(x[0].shape, widths, strict=True)]
    out = np.full(shape, x[1], x[0].dtype)
    inner = tuple(slice(lo, lo + n) for n, (lo, _) in zip(x[0].shape, widths, strict=True))
    out[inner] = x[0]
    return out


def _reduce(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    axes = attrs.integers("dimensions")
    low, high = ends(x[0].dtype)
    wide = widened(x[0])
    kind = attrs.text("kind")
    if kind == "add":
        return np.asarray(np.sum(wide, axes, dtype=wide.dtype)).astype(x[0].dtype)
    combine, first = (np.maximum, low) if kind == "maximum" else (np.minimum, high)
    return np.asarray(combine.reduce(wide, axes, initial=first)).astype(x[0].dtype)


def _dot_general(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    lhs, rhs = x
    lb, rb = attrs.integers("lhs_batch_dims"), attrs.integers("rhs_batch_dims")
    lc, rc = attrs.integers("lhs_contracting_dims"), attrs.integers("rhs_contracting_dims")
    lf = [i for i in range(lhs.ndim) if i not in lb and i not in lc]
    rf = [i for i in range(rhs.ndim) if i not in rb and i not in rc]
    dtype = attrs.element("dtype")
    # Integers are summed in the result's type, floats at least in f32, and so are the floats that
    # 8-bit integers may carry.
    held = how.wide if how.wide is not None and how.wide in (lhs.dtype, rhs.dtype) else None
    kind = held or (how.dtype(dtype) if dtype.is_integer else how.accumulator(lhs))
    left = lhs.astype(kind).transpose([*lb, *lf, *lc])
    right = rhs.astype(kind).transpose([*rb, *rc, *rf])
    batch = left.shape[: len(lb)]
    free_left, free_right = [lhs.shape[i] for i in lf], [rhs.shape[i] for i in rf]
    depth = int(np.prod([lhs.shape[i] for i in lc], dtype=np.int64))
    rows, columns = (int(np.prod(f, dtype=np.int64)) for f in (free_left, free_right))
    out = np.matmul(left.reshape(*batch, rows, depth), right.reshape(*batch, depth, columns))
    return out.reshape([*batch, *free_left, *free_right]).astype(held or how.dtype(dtype))


def _starts(starts: Sequence[Array], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Scalar starts, clamped so that a window of ``sizes`` lies inside ``shape``."""
    return [
        min(max(int(start), 0), limit - size)
        for start, limit, size in zip(starts, shape, sizes, strict=True)
    ]


def _dynamic_slice(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    sizes = static(attrs, "slice_sizes")
    starts = _starts(x[1:], x[0].shape, sizes)
    return x[0][tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))]


def _dynamic_update_slice(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    starts = _starts(x[2:], x[0].shape, x[1].shape)
    out = x[0].copy()
    out[tuple(slice(s, s + n) for s, n in zip(starts, x[1].shape, strict=True))] = x[1]
    return out


def _windows(
    indices: Array, vector_dim: int, targets: Sequence[int], rank: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Start of each window in every operand dimension: [batch..., rank]."""
    vectors = (
        indices[..., None] if vector_dim == indices.ndim else np.moveaxis(indices, vector_dim, -1)
    )
    starts = np.zeros((*vectors.shape[:-1], rank), np.int64)
    for position, dim in enumerate(targets):
        starts[..., dim] = vectors[..., position].astype(np.int64)
    return starts


def _places(
    starts: np.ndarray[tuple[int, ...], np.dtype[np.int64]], sizes: Sequence[int]
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], ...]:
    """Per operand dimension the index of each window element: [batch..., sizes...]."""
    rank, batch = len(sizes), starts.ndim - 1
    out: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
    for dim, size in enumerate(sizes):
        view = [1] * rank
        view[dim] = size
        ramp = np.arange(size, dtype=np.int64).reshape([1] * batch + view)
        out.append(starts[..., dim].reshape(starts.shape[:-1] + (1,) * rank) + ramp)
    return tuple(out)


def _gather(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    operand, indices = x
    sizes, offset = static(attrs, "slice_sizes"), attrs.integers("offset_dims")
    starts = _windows(
        indices, attrs.integer("index_vector_dim"), attrs.integers("start_index_map"), operand.ndim
    )
    limit = np.asarray(operand.shape, dtype=np.int64) - np.asarray(sizes, dtype=np.int64)
    found = operand[_places(np.clip(starts, 0, limit), sizes)]
    batch = starts.ndim - 1
    found = found.squeeze(tuple(batch + dim for dim in attrs.integers("collapsed_slice_dims")))
    rest = iter(range(batch))
    window = iter(range(batch, found.ndim))
    return found.transpose([next(window) if i in offset else next(rest) for i in range(found.ndim)])


def _take(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    operand, indices = x
    axis, block = attrs.integer("dimension"), attrs.integer("block")
    before, after = operand.shape[:axis], operand.shape[axis + 1 :]
    count = operand.shape[axis] // block
    inside = (indices >= 0) & (indices < count)
    out = np.zeros((*before, len(indices), block, *after), operand.dtype)
    lead = (slice(None),) * axis
    blocks = operand.reshape(*before, count, block, *after)
    # Only what is taken is read; a checkpoint tensor may be a file.
    out[(*lead, inside)] = blocks[(*lead, indices[inside])]
    return out.reshape(*before, len(indices) * block, *after)


def _scatter(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    operand, indices, updates = x
    window, inserted = attrs.integers("update_window_dims"), attrs.integers("inserted_window_dims")
    starts = _windows(
        indices,
        attrs.integer("index_vector_dim"),
        attrs.integers("scatter_dims_to_operand_dims"),
        operand.ndim,
    )
    rest = [i for i in range(updates.ndim) if i not in window]
    moved = updates.transpose([*rest, *window])
    moved = np.expand_dims(moved, tuple(len(rest) + dim for dim in sorted(inserted)))
    sizes = moved.shape[len(rest) :]
    limit = np.asarray(operand.shape, dtype=np.int64) - np.asarray(sizes, dtype=np.int64)
    inside = np.all((starts >= 0) & (starts <= limit), axis=-1)
    places = _places(starts[inside], sizes)
    out = operand.copy()
    if attrs.text("kind") == "add":
        np.add.at(out, places, moved[inside])
    else:
        out[places] = moved[inside]
    return out


RULES: dict[str, Rule] = {
    "exponential": _unary(np.exp),
    "rsqrt": _unary(lambda x: 1 / np.sqrt(x)),
    "logistic": _unary(logistic),
    "cosine": _unary(np.cos),
    "sine": _unary(np.sin),
    "negate": _unary(np.negative),
    "abs": _unary(np.abs),
    "round_nearest_even": _round_nearest_even,
    "clamp": _clamp,
    "add": _binary(np.add),
    "subtract": _binary(np.subtract),
    "multiply": _binary(np.multiply),
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    "divide": _divide,
    "and": _binary(np.bitwise_and),
    "compare": _compare,
    "select": lambda how, attrs, x: np.where(x[0], x[1], x[2]),
    "convert": _convert,
    "bitcast_convert": _bitcast_convert,
    "constant": _constant,
    "iota": _iota,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "reduce": _reduce,
    "dot_general": _dot_general,
    "gather": _gather,
    "take": _take,
    "scatter": _scatter,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}
