"""Copy plans: a tensor as boxes filled from strided views of other arrays.

Slice, concatenate, transpose and reshape change boxes and views only; the bytes are copied once,
when the plan is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final

import numpy as np

from graphgen.eval import Array

Shape = tuple[int, ...]
Observer = Callable[[Array], None]
# Bytes per copy: source and target fit into a core's own cache.
_BLOCK: Final = 1 << 19


class NotACopyError(Exception):
    """The value cannot be expressed as boxes filled from views."""


@dataclass(frozen=True, slots=True)
class Box:
    """One box of a tensor.

    Attributes:
        start: index of the box's first element.
        source: a view of the box's shape; elements of another type than the tensor's are converted
            by the copy.
    """

    start: Shape
    source: Array


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A tensor partitioned into boxes.

    Attributes:
        shape: of the tensor.
        dtype: its element type.
        boxes: disjoint, and together the whole tensor.
    """

    shape: Shape
    dtype: np.dtype[np.generic]
    boxes: tuple[Box, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * self.dtype.itemsize

    def fill(self, target: Array, observe: Observer | None = None) -> None:
        """Copy every box into ``target``, an array of this shape and type.

        Args:
            target: the destination.
            observe: called with every part of ``target`` right after its copy, while a core's own
                cache holds it; a later pass would fetch it from memory again.
        """
        # Values out of range become infinite; the caller reports them with the tensor's name.
        with np.errstate(over="ignore"):
            for part in self.boxes:
                box = tuple(
                    slice(at, at + size)
                    for at, size in zip(part.start, part.source.shape, strict=True)
                )
                # With the dots, one number is an array as well.
                _copy(target[(..., *box)], part.source, observe)

    def array(self) -> Array:
        """The tensor as an array; a view if a single box of its type covers it."""
        if len(self.boxes) == 1 and self.boxes[0].source.dtype == self.dtype:
            return self.boxes[0].source
        filled = np.empty(self.shape, self.dtype)
        self.fill(filled)
        return filled


def _copy(to: Array, source: Array, observe: Observer | None) -> None:
    """Copy an array in parts along its first dimensions."""
    if to.nbytes <= _BLOCK:
        np.copyto(to, source, casting="unsafe")
        if observe is not None:
            observe(to)
    elif to.nbytes // len(to) > _BLOCK:
        for inner in zip(to, source, strict=True):
            _copy(*inner, observe)
    else:
        rows = _BLOCK * len(to) // to.nbytes
        for start in range(0, len(to), rows):
            _copy(to[start : start + rows], source[start : start + rows], observe)


def from_array(array: Array, dtype: np.dtype[np.generic] | None = None) -> CopyPlan:
    """An array as one box, converted to ``dtype`` by the copy."""
    return CopyPlan(array.shape, dtype or array.dtype, (Box((0,) * array.ndim, array),))


def convert(value: CopyPlan, dtype: np.dtype[np.generic]) -> CopyPlan:
    """The plan with element type ``dtype``; two conversions in a row cannot be one copy."""
    if any(part.source.dtype != value.dtype for part in value.boxes):
        raise NotACopyError
    return CopyPlan(value.shape, dtype, value.boxes)


def slice_box(value: CopyPlan, starts: Sequence[int], sizes: Sequence[int]) -> CopyPlan:
    """The sub-tensor of these sizes that starts at ``starts``."""
    kept: list[Box] = []
    for part in value.boxes:
        low = [max(a, b) for a, b in zip(part.start, starts, strict=True)]
        high = [
            min(at + extent, start + size)
            for at, extent, start, size in zip(
                part.start, part.source.shape, starts, sizes, strict=True
            )
        ]
        if all(a < b for a, b in zip(low, high, strict=True)):
            inside = tuple(
                slice(a - at, b - at) for a, b, at in zip(low, high, part.start, strict=True)
            )
            start = tuple(a - first for a, first in zip(low, starts, strict=True))
            kept.append(Box(start, part.source[inside]))
    return CopyPlan(tuple(sizes), value.dtype, tuple(kept))


def concatenate(values: Sequence[CopyPlan], dimension: int) -> CopyPlan:
    """The tensors one after the other along a dimension."""
    parts: list[Box] = []
    offset = 0
    for value in values:
        parts += [Box(_moved(part.start, dimension, offset), part.source) for part in value.boxes]
        offset += value.shape[dimension]
    shape = list(values[0].shape)
    shape[dimension] = offset
    return CopyPlan(tuple(shape), values[0].dtype, tuple(parts))


def _moved(start: Shape, dimension: int, by: int) -> Shape:
    return (*start[:dimension], start[dimension] + by, *start[dimension + 1 :])


def take_blocks(value: CopyPlan, dimension: int, block: int, indices: Sequence[int]) -> CopyPlan:
    """Gather blocks of size ``block`` along a dimension; index -1 is a block of zeros."""
    sizes = list(value.shape)
    parts: list[CopyPlan] = []
    for first, count in _runs(indices):
        sizes[dimension] = count * block
        if first < 0:
            parts.append(constant(0, tuple(sizes), value.dtype))
            continue
        starts = [0] * len(sizes)
        starts[dimension] = first * block
        parts.append(slice_box(value, starts, sizes))
    return concatenate(parts, dimension)


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """``(first, count)`` of runs of consecutive indices, or of -1."""
    breaks = [
        place
        for place, (a, b) in enumerate(pairwise(indices), 1)
        if not (b == a + 1 and a >= 0) and not a == b == -1
    ]
    edges = [0, *breaks, len(indices)]
    return [(indices[a], b - a) for a, b in pairwise(edges)]


def constant(number: float | np.generic, shape: Shape, dtype: np.dtype[np.generic]) -> CopyPlan:
    """A tensor of one number, without memory of its own."""
    return from_array(np.broadcast_to(np.asarray(number, dtype), shape))


def transpose(value: CopyPlan, order: Sequence[int]) -> CopyPlan:
    """The tensor with dimensions in this order."""
    parts = [
        Box(tuple(part.start[i] for i in order), part.source.transpose(order))
        for part in value.boxes
    ]
    return CopyPlan(tuple(value.shape[i] for i in order), value.dtype, tuple(parts))


def reshape(value: CopyPlan, shape: Shape) -> CopyPlan:
    """The same elements under another shape, box by box.

    Raises:
        NotACopyError: if a box would not stay a box, or its view would have to be copied.
    """
    if prod(value.shape) == 0:
        return constant(0, shape, value.dtype)
    parts: list[Box] = []
    for part in value.boxes:
        start, extents = reshaped_box(part.start, part.source.shape, value.shape, shape)
        try:
            view = part.source.reshape(extents, copy=False)
        except ValueError as error:
            raise NotACopyError from error
        parts.append(Box(start, view))
    return CopyPlan(shape, value.dtype, tuple(parts))


def reshaped_box(start: Shape, extents: Shape, old: Shape, new: Shape) -> tuple[Shape, Shape]:
    """The first index and the sizes of a box under another shape of its tensor.

    Args:
        start, extents: of the box under the shape ``old``.
        old, new: two shapes of as many elements, of which there are some.

    Raises:
        NotACopyError: if it would not stay a box.
    """
    starts: list[int] = []
    sizes: list[int] = []
    for before, after in _groups(old, new):
        at, extent = _box(*_flat(start[before], extents[before], old[before]), new[after])
        starts += at
        sizes += extent
    return tuple(starts), tuple(sizes)


def _groups(old: Shape, new: Shape) -> list[tuple[slice, slice]]:
    """The shortest runs of dimensions of both shapes with equal element counts."""
    groups: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_i, first_j = i, j
        left = right = 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        groups.append((slice(first_i, i), slice(first_j, j)))
    return groups


def _flat(start: Shape, extents: Shape, sizes: Shape) -> tuple[int, int]:
    """A box as ``(first, count)`` in row-major order (NotACopyError if it has gaps)."""
    partial = next((i for i, extent in enumerate(extents) if extent != 1), None)
    if partial is not None and extents[partial + 1 :] != sizes[partial + 1 :]:
        raise NotACopyError
    first = 0
    for at, size in zip(start, sizes, strict=True):
        first = first * size + at
    return first, prod(extents)


def _box(first: int, count: int, sizes: Shape) -> tuple[list[int], list[int]]:
    """Elements ``first`` to ``first + count`` in row-major order as ``(start, extents)``."""
    start: list[int] = []
    extents: list[int] = []
    inner = prod(sizes)
    for size in sizes:
        inner //= size
        at, first = divmod(first, inner)
        # Several whole inner rows, or a part of a single one.
        many, rest = divmod(count, inner)
        if count >= inner and (rest or first):
            raise NotACopyError
        extent = max(many, 1)
        if at + extent > size or (count < inner and first + count > inner):
            raise NotACopyError
        start.append(at)
        extents.append(extent)
        count = inner if many else count
    return start, extents
