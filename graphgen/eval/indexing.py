"""NumPy rules of indexing: gather, scatter, take, dynamic slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import (
    COMBINE,
    Arithmetic,
    Array,
)
from graphgen.eval.registry import eval_rule, static, update_rule
from graphgen.ir import Attrs


def _starts(starts: Sequence[Array], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Scalar starts, clamped so that a window of ``sizes`` fits ``shape``."""
    return [
        min(max(int(start), 0), limit - size)
        for start, limit, size in zip(starts, shape, sizes, strict=True)
    ]


@eval_rule("dynamic_slice")
def _dynamic_slice(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    sizes = static(attrs, "slice_sizes")
    starts = _starts(x[1:], x[0].shape, sizes)
    return x[0][tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))]


@eval_rule("dynamic_update_slice")
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


@eval_rule("gather")
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


@eval_rule("take")
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


@update_rule("scatter", new=2)
def _scatter(how: Arithmetic, attrs: Attrs, x: Sequence[Array], out: Array) -> None:
    places, moved = scatter_places(attrs, *x)
    whole = out.reshape(indexed_shape(out.shape))
    if attrs.text("kind") == "assign":
        whole[places] = moved
    else:
        COMBINE[attrs.text("kind")].at(whole, places, moved)


@eval_rule("scatter")
def _scattered(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return _scatter(how, attrs, x)


def indexed_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that places index: a scalar is an array of one element."""
    return shape or (1,)


def scatter_places(
    attrs: Attrs, operand: Array, indices: Array, updates: Array
) -> tuple[tuple[Array, ...], Array]:
    """Indices of updates, an array per dimension of the operand, and the updates themselves.

    They are of the operand in its :func:`indexed_shape`.

    Windows that do not lie wholly inside are left out.
    """
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
    kept = moved[inside]
    if not operand.ndim:
        return (np.zeros(kept.shape, np.int64),), kept
    return _places(starts[inside], sizes), kept
