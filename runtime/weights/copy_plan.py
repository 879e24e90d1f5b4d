"""A tensor as pieces of other tensors: what layout ops do to it, without moving a byte.

A value is a list of boxes, each of which is filled from a view of some array. Slicing, joining,
permuting and reshaping change boxes and views only; the bytes move once, when all is said.
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
See = Callable[[Array], None]
# Bytes copied in a row: where they come from and where they go fit into a core's own cache.
_BLOCK: Final = 1 << 19


class NotACopyError(Exception):
    """What is asked for cannot be said as boxes filled from views."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One box of a tensor.

    Attributes:
        start: the box's first element.
        source: a view of the box's shape; where the tensor has another element type, its elements
            are converted when they are copied.
    """

    start: Shape
    source: Array


@dataclass(frozen=True, slots=True)
class Pieces:
    """A tensor made of boxes that do not overlap and leave nothing out.

    Attributes:
        shape: of the tensor.
        dtype: its element type.
        parts: the boxes.
    """

    shape: Shape
    dtype: np.dtype[np.generic]
    parts: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * self.dtype.itemsize

    def fill(self, target: Array, see: See | None = None) -> None:
        """Copy every box into ``target``, an array of this shape and type.

        Args:
            target: where to.
            see: shown every part of ``target`` right after it was written, while a core's own cache
                holds it: looking later would fetch it from memory again.
        """
        # What does not fit becomes infinite, and is told of with the tensor's name later.
        with np.errstate(over="ignore"):
            for part in self.parts:
                box = tuple(
                    slice(at, at + size)
                    for at, size in zip(part.start, part.source.shape, strict=True)
                )
                # With the dots, one number is an array as well.
                _copy(target[(..., *box)], part.source, see)

    def array(self) -> Array:
        """The tensor as an array: a view where one box of the right type is all of it."""
        if len(self.parts) == 1 and self.parts[0].source.dtype == self.dtype:
            return self.parts[0].source
        made = np.empty(self.shape, self.dtype)
        self.fill(made)
        return made


def _copy(to: Array, source: Array, see: See | None) -> None:
    """Copy an array in parts along its first dimensions."""
    if to.nbytes <= _BLOCK:
        np.copyto(to, source, casting="unsafe")
        if see is not None:
            see(to)
    elif to.nbytes // len(to) > _BLOCK:
        for inner in zip(to, source, strict=True):
            _copy(*inner, see)
    else:
        rows = _BLOCK * len(to) // to.nbytes
        for start in range(0, len(to), rows):
            _copy(to[start : start + rows], source[start : start + rows], see)


def whole(array: Array, dtype: np.dtype[np.generic] | None = None) -> Pieces:
    """An array as one box, to be converted to ``dtype`` when it is copied."""
    return Pieces(array.shape, dtype or array.dtype, (Piece((0,) * array.ndim, array),))


def convert(value: Pieces, dtype: np.dtype[np.generic]) -> Pieces:
    """Elements of another type; two conversions in a row are not one."""
    if any(part.source.dtype != value.dtype for part in value.parts):
        raise NotACopyError
    return Pieces(value.shape, dtype, value.parts)


def cut(value: Pieces, starts: Sequence[int], sizes: Sequence[int]) -> Pieces:
    """The box of these sizes that begins at ``starts``."""
    kept: list[Piece] = []
    for part in value.parts:
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
            kept.append(Piece(start, part.source[inside]))
    return Pieces(tuple(sizes), value.dtype, tuple(kept))


def join(values: Sequence[Pieces], dimension: int) -> Pieces:
    """One after the other along a dimension."""
    parts: list[Piece] = []
    offset = 0
    for value in values:
        parts += [Piece(_moved(part.start, dimension, offset), part.source) for part in value.parts]
        offset += value.shape[dimension]
    shape = list(values[0].shape)
    shape[dimension] = offset
    return Pieces(tuple(shape), values[0].dtype, tuple(parts))


def _moved(start: Shape, dimension: int, by: int) -> Shape:
    return (*start[:dimension], start[dimension] + by, *start[dimension + 1 :])


def take_blocks(value: Pieces, dimension: int, block: int, indices: Sequence[int]) -> Pieces:
    """Blocks of ``block`` along a dimension in the order of ``indices``; -1 is a block of zeros."""
    sizes = list(value.shape)
    parts: list[Pieces] = []
    for first, count in _runs(indices):
        sizes[dimension] = count * block
        if first < 0:
            parts.append(constant(0, tuple(sizes), value.dtype))
            continue
        starts = [0] * len(sizes)
        starts[dimension] = first * block
        parts.append(cut(value, starts, sizes))
    return join(parts, dimension)


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """``(first, count)`` of neighbors that follow one another, or are all zeros."""
    breaks = [
        place
        for place, (a, b) in enumerate(pairwise(indices), 1)
        if not (b == a + 1 and a >= 0) and not a == b == -1
    ]
    edges = [0, *breaks, len(indices)]
    return [(indices[a], b - a) for a, b in pairwise(edges)]


def constant(number: float | np.generic, shape: Shape, dtype: np.dtype[np.generic]) -> Pieces:
    """One number everywhere; it takes no memory."""
    return whole(np.broadcast_to(np.asarray(number, dtype), shape))


def permute(value: Pieces, order: Sequence[int]) -> Pieces:
    """Dimensions in another order."""
    parts = [
        Piece(tuple(part.start[i] for i in order), part.source.transpose(order))
        for part in value.parts
    ]
    return Pieces(tuple(value.shape[i] for i in order), value.dtype, tuple(parts))


def reshape(value: Pieces, shape: Shape) -> Pieces:
    """The same elements under other dimensions, box by box.

    Raises:
        NotACopyError: where a box would be none any more, or its view would have to be copied.
    """
    if prod(value.shape) == 0:
        return constant(0, shape, value.dtype)
    groups = _groups(value.shape, shape)
    parts: list[Piece] = []
    for part in value.parts:
        start: list[int] = []
        extents: list[int] = []
        for old, new in groups:
            flat = _flat(part.start[old], part.source.shape[old], value.shape[old])
            at, extent = _box(*flat, shape[new])
            start += at
            extents += extent
        try:
            view = part.source.reshape(extents, copy=False)
        except ValueError as error:
            raise NotACopyError from error
        parts.append(Piece(tuple(start), view))
    return Pieces(shape, value.dtype, tuple(parts))


def _groups(old: Shape, new: Shape) -> list[tuple[slice, slice]]:
    """The shortest runs of dimensions on both sides that have as many elements."""
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
    """A box as ``(first, count)`` of row-major order, where it is without gaps."""
    partial = next((i for i, extent in enumerate(extents) if extent != 1), None)
    if partial is not None and extents[partial + 1 :] != sizes[partial + 1 :]:
        raise NotACopyError
    first = 0
    for at, size in zip(start, sizes, strict=True):
        first = first * size + at
    return first, prod(extents)


def _box(first: int, count: int, sizes: Shape) -> tuple[list[int], list[int]]:
    """Elements ``first`` to ``first + count`` of row-major order as a box."""
    start: list[int] = []
    extents: list[int] = []
    inner = prod(sizes)
    for size in sizes:
        inner //= size
        at, first = divmod(first, inner)
        # Whole rows of what is inside, or all within one of them.
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
