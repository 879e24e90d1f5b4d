"""Arrays made a tile at a time: weights that are larger than the memory they may take.

A tile is a range of slices along one axis, the one along which the array is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import ml_dtypes
import numpy as np

from graphgen.eval import Array

# Elements of a tile: 8 MiB of float64, about what the caches of two cores hold.
TILE = 1 << 20

Result = TypeVar("Result")
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"

MakeTile = Callable[[int, int], Array]

_BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(slots=True)
class MemoryMeter:
    """Accounts of the arrays that an evaluation makes.

    Attributes:
        largest: bytes of the largest array that was made.
        read: elements of weights that were read, each as often as it was.
    """

    largest: int = 0
    read: int = 0

    def made(self, array: Array) -> Array:
        """Count ``array``, which is returned. A view costs nothing."""
        if array.base is None:
            self.largest = max(self.largest, array.nbytes)
        return array


@dataclass(frozen=True, slots=True, eq=False)
class StreamedArray:
    """An array whose tiles are made when they are needed, and not kept.

    Attributes:
        shape: sizes.
        axis: dimension along which tiles are cut.
        make: (start, stop) -> the slices from start up to stop along ``axis``.
        tile: about how many elements a tile has; at least one slice.
    """

    shape: tuple[int, ...]
    axis: int
    make: MakeTile
    tile: int = TILE

    @property
    def step(self) -> int:
        """Slices of a tile."""
        return tile_rows(self.shape, self.axis, self.tile)

    def derived(self, shape: tuple[int, ...], axis: int, make: MakeTile) -> StreamedArray:
        """An array made of this one, in tiles of the same number of elements."""
        return StreamedArray(shape, axis, make, self.tile)

    def tiles(self) -> Iterator[tuple[int, int, Array]]:
        """(start, stop, slices from start up to stop), in order."""
        step, size = self.step, self.shape[self.axis]
        for start in range(0, size, step):
            stop = min(start + step, size)
            yield start, stop, self.make(start, stop)

    def whole(self) -> Array:
        """All of it, as one array in memory."""
        parts = [part for _, _, part in self.tiles()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self.axis)

    def picked(self, indices: Array) -> Array:
        """The slices of these indices along ``axis``, which are in range: one read each."""
        wanted, places = np.unique(indices.ravel(), return_inverse=True)
        parts = [self.make(int(i), int(i) + 1) for i in wanted]
        if not parts:
            return self.make(0, 0)
        return np.take(np.concatenate(parts, self.axis), places.ravel(), self.axis)


Streamed = Array | StreamedArray


def tile_rows(shape: Sequence[int], axis: int, tile: int = TILE) -> int:
    """Slices along ``axis`` that are a tile together."""
    return max(1, tile // max(prod(shape) // max(shape[axis], 1), 1))


def each_tile(x: StreamedArray, work: Callable[[int, int], Result]) -> Iterator[Result]:
    """The results of ``work`` for each tile, (start, stop), in order; one tile a core at a time.

    BLAS has threads of its own, which hinder each other. Tiles are worked on in parallel only where
    it is limited to one, by ``OPENBLAS_NUM_THREADS=1`` before NumPy is imported.
    """
    size, step = x.shape[x.axis], x.step
    ranges = [(start, min(start + step, size)) for start in range(0, size, step)]
    if len(ranges) == 1 or os.environ.get(_BLAS_THREADS) != "1":
        for start, stop in ranges:
            yield work(start, stop)
        return

    def quietly(bounds: tuple[int, int]) -> Result:
        with np.errstate(all="ignore"):
            return work(*bounds)

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        # As many as there are cores, so that finished tiles do not pile up.
        for first in range(0, len(ranges), cores):
            yield from pool.map(quietly, ranges[first : first + cores])


def materialized(value: Streamed, meter: MemoryMeter) -> Array:
    """The value as an array in memory."""
    return meter.made(value.whole()) if isinstance(value, StreamedArray) else value


def converted(tile: Array, kind: np.dtype[np.generic]) -> Array:
    """``tile`` in the element type ``kind``; bf16 to f32 by moving bits, twice as fast as NumPy."""
    if tile.dtype != _BF16 or kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        return tile.astype(kind, copy=False)
    bits = np.ascontiguousarray(tile).view(np.uint16).astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32).astype(kind, copy=False)
