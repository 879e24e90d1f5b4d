"""Detect NaN and infinite weights, fast enough to check every weight that is loaded."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from graphgen.eval import Array

COLUMNS: Final = 512
ROW_BYTES: Final = COLUMNS * 8
DIGITS: Final = 32
_WORD: Final = np.dtype("<u8")


class Checksum:
    """Checksum of bytes that come in pieces."""

    def __init__(self) -> None:
        self._columns = np.zeros(COLUMNS, np.uint64)
        self._rows = hashlib.sha256()
        self._ended = False

    def update(self, piece: Array) -> None:
        """Add the next bytes.

        Args:
            piece: u8 [n], n a multiple of 8; only the last piece may end within a row.
        """
        assert not self._ended, "a piece after one that ends within a row"
        words = piece.view(_WORD)
        whole = len(words) // COLUMNS * COLUMNS
        rows = words[:whole].reshape(-1, COLUMNS)
        self._rows.update(rows.sum(1, dtype=np.uint64).astype(_WORD).data)
        self._columns += rows.sum(0, dtype=np.uint64)
        rest = words[whole:]
        if len(rest):
            self._ended = True
            self._rows.update(rest.sum(keepdims=True, dtype=np.uint64).astype(_WORD).data)
            self._columns[: len(rest)] += rest

    def hexdigest(self) -> str:
        """The checksum of all pieces, 32 hexadecimal digits."""
        whole = self._rows.copy()
        whole.update(self._columns.astype(_WORD).data)
        return whole.hexdigest()[:DIGITS]


def checksum(data: Array) -> str:
    """The checksum of u8 [n], n a multiple of 8."""
    made = Checksum()
    made.update(data)
    return made.hexdigest()


# Bytes per step: they stay in a core's own cache.
_CHUNK: Final = 1 << 18
# (signed type of the width, unsigned type, mask of all bits but the sign, bits of infinity). As an
# integer, |x| > infinity means NaN; NumPy's own test is ten times slower on 16-bit types.
_BITS: Final = {
    "float32": (np.int32, np.uint32, 0x7FFFFFFF, 0x7F800000),
    "float16": (np.int16, np.uint16, 0x7FFF, 0x7C00),
    "bfloat16": (np.int16, np.uint16, 0x7FFF, 0x7F80),
}


class MaxMagnitude:
    """The largest magnitude of a tensor that is observed part by part.

    Args:
        dtype: of the tensor; only f32, f16 and bf16 are checked.
    """

    __slots__ = ("_beyond", "_kind")

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self._kind = _BITS.get(dtype.name)
        # The bits of the largest magnitude minus those of infinity.
        self._beyond = -1

    def observe(self, part: Array) -> None:
        """Take a part of the tensor into account; quickest while it is in the cache."""
        if self._kind is None or not part.size:
            return
        signed, unsigned, magnitude, infinity = self._kind
        # As signed integers, negative elements are below all others; as unsigned ones above, and
        # the one of the largest magnitude is the maximum.
        positive = int(part.view(signed).max())
        negative = int(part.view(unsigned).max()) & magnitude
        self._beyond = max(self._beyond, positive - infinity, negative - infinity)

    @property
    def is_nan(self) -> bool:
        """True if any element is NaN."""
        return self._beyond > 0

    @property
    def is_infinite(self) -> bool:
        """True if any element is infinite and none is NaN."""
        return self._beyond == 0


def max_magnitude(array: Array) -> MaxMagnitude:
    """The largest magnitude of an array."""
    seen = MaxMagnitude(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    step = _CHUNK // flat.itemsize
    for start in range(0, flat.size, step):
        seen.observe(flat[start : start + step])
    return seen


def nan_indices(array: Array) -> tuple[int, tuple[int, ...]]:
    """(number of NaN elements, index of the first) of a float array that holds one."""
    places = np.argwhere(np.isnan(array.astype(np.float32)))
    return len(places), tuple(int(index) for index in places[0])
