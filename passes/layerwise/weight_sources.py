"""Weights by name: generated at each read from a seed, or read from files."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from statistics import NormalDist
from typing import Protocol

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.eval.element_kinds import has_floats
from graphgen.ir import Entry, TensorType
from graphgen.ir.dtype import part_of
from graphgen.passes.layerwise.streamed_array import (
    TILE,
    MemoryMeter,
    Streamed,
    StreamedArray,
    tile_rows,
)

# Bytes of random tiles kept for the next call of the same layer.
KEPT_BYTES = 1 << 30


class WeightSource(Protocol):
    """Gives the weights of a model one by one."""

    def __call__(self, row: Entry) -> Streamed:
        """The checkpoint tensor of an interface row, in its logical type."""
        ...


class RandomWeights:
    """Random weights of the shapes of a real model, each a function of its name and the seed.

    Matrices have the deviation of ``1 / sqrt(columns)``, so that products keep the size of what
    they read; scales of norms lie around 1. A block of rows is made when it is read. The last
    blocks are kept, so that the calls of one layer make them once.

    Args:
        seed: of all weights.
        meter: counts what is read.
        tile: about how many elements a block has; tensors with fewer are made whole.
        kept: bytes of blocks that are kept.
    """

    def __init__(
        self,
        seed: int = 0,
        meter: MemoryMeter | None = None,
        tile: int = TILE,
        kept: int = KEPT_BYTES,
    ) -> None:
        self.seed = seed
        self.meter = meter or MemoryMeter()
        self.tile = tile
        self.kept = kept
        self._blocks: OrderedDict[tuple[str, int], Array] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    def __call__(self, row: Entry) -> Streamed:
        """The weight of ``row``."""
        type_ = row.logical
        step = tile_rows(type_.dims or (1,), 0, self.tile)

        def make(start: int, stop: int) -> Array:
            numbers = range(start // step, max(-(-stop // step), start // step + 1))
            blocks = [self._block(row.name, type_, number, step) for number in numbers]
            joined = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
            return joined[start - numbers[0] * step : stop - numbers[0] * step]

        if type_.rank == 0 or type_.nbytes <= self.tile * type_.dtype.bytes:
            return self._block(row.name, type_, 0, step)
        return StreamedArray(type_.dims, 0, make, self.tile)

    def _block(self, name: str, type_: TensorType, number: int, step: int) -> Array:
        key = (name, number)
        with self._lock:
            found = self._blocks.get(key)
            if found is not None:
                self._blocks.move_to_end(key)
        if found is None:
            found = self.meter.made(self._drawn(name, type_, number, step))
            self._keep(key, found)
        self.meter.read += found.size
        return found

    def _keep(self, key: tuple[str, int], block: Array) -> None:
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = block
                self._held += block.nbytes
            while self._held > self.kept and len(self._blocks) > 1:
                self._held -= self._blocks.popitem(last=False)[1].nbytes

    def _drawn(self, name: str, type_: TensorType, number: int, step: int) -> Array:
        rows = [min(step, type_.dims[0] - number * step)] if type_.rank else []
        shape = (*rows, *type_.dims[1:])
        text = f"{self.seed} {name} {number}"
        digest = hashlib.sha256(text.encode()).digest()
        bits = np.random.SFC64(int.from_bytes(digest[:16], "little"))
        count = int(np.prod(shape, dtype=np.int64))
        raw = bits.random_raw(-(-count // 4)).view(np.uint16)[:count]
        kind = numpy_dtype(part_of(type_.dtype))
        if not has_floats(type_.dtype):
            return (raw % 5).astype(kind).reshape(shape)
        if type_.rank > 1:
            table = _normal(kind, 1 / float(np.sqrt(type_.dims[-1])), 0.0)
        else:
            table = _normal(kind, 0.1, 1.0 if "norm" in name or "ln_" in name else 0.0)
        made = table.take(raw)
        if type_.dtype.is_complex:
            # The same numbers in the other order.
            made = (made + 1j * made[::-1]).astype(numpy_dtype(type_.dtype))
        return made.reshape(shape)


@cache
def _normal(kind: np.dtype[np.generic], deviation: float, mean: float) -> Array:
    """The 2^16 quantiles of a normal distribution, in an element type."""
    return (_quantiles() * deviation + mean).astype(kind)


@cache
def _quantiles() -> Array:
    inverse = NormalDist().inv_cdf
    half = np.array([inverse((i + 0.5) / 65536) for i in range(32768)])
    return np.concatenate([half, -half[::-1]])


class StoredWeights:
    """Weights of a checkpoint, whose arrays are views of files.

    Args:
        read: interface row -> its tensor, as stored.
        meter: counts what is read.
        tile: about how many elements are converted at a time.
    """

    def __init__(
        self, read: Callable[[Entry], Array], meter: MemoryMeter | None = None, tile: int = TILE
    ) -> None:
        self.read = read
        self.meter = meter or MemoryMeter()
        self.tile = tile

    def __call__(self, row: Entry) -> Streamed:
        """The weight of ``row``."""
        array, kind = self.read(row), numpy_dtype(row.logical.dtype)

        def make(start: int, stop: int) -> Array:
            part = array[start:stop].astype(kind)
            self.meter.read += part.size
            return self.meter.made(part)

        if array.ndim == 0 or array.size <= self.tile:
            return array.astype(kind)
        return StreamedArray(array.shape, 0, make, self.tile)
