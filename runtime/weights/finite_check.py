"""Find values that are not finite numbers, fast enough to look at every weight that is loaded."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphgen.eval import Array

# Bytes looked at in a row: they stay in a core's own cache.
_CHUNK: Final = 1 << 18
# By the bits of an element: its size as a signed and an unsigned type, all bits but the sign, and
# the bits of infinity. What is above infinity is not a number; NumPy's own test is ten times slower
# on types of 16 bits.
_BITS: Final = {
    "float32": (np.int32, np.uint32, 0x7FFFFFFF, 0x7F800000),
    "float16": (np.int16, np.uint16, 0x7FFF, 0x7C00),
    "bfloat16": (np.int16, np.uint16, 0x7FFF, 0x7F80),
}


class Largest:
    """How far from zero the elements of a tensor are that is seen part by part.

    Args:
        dtype: of the tensor; types that have no NaN or are not looked at hold nothing.
    """

    __slots__ = ("_beyond", "_kind")

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self._kind = _BITS.get(dtype.name)
        # The bits of the farthest element, less those of infinity.
        self._beyond = -1

    def see(self, part: Array) -> None:
        """Look at some of the elements; quickest while they are in the cache."""
        if self._kind is None or not part.size:
            return
        signed, unsigned, magnitude, infinity = self._kind
        # With a sign, negative elements are below all others; without, they are above, and the one
        # farthest from zero is the largest.
        positive = int(part.view(signed).max())
        negative = int(part.view(unsigned).max()) & magnitude
        self._beyond = max(self._beyond, positive - infinity, negative - infinity)

    @property
    def is_nan(self) -> bool:
        """Whether any element is NaN."""
        return self._beyond > 0

    @property
    def is_infinite(self) -> bool:
        """Whether any element is infinite and none is NaN."""
        return self._beyond == 0


def largest(array: Array) -> Largest:
    """All elements of an array, seen."""
    seen = Largest(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    step = _CHUNK // flat.itemsize
    for start in range(0, flat.size, step):
        seen.see(flat[start : start + step])
    return seen


def nan_places(array: Array) -> tuple[int, tuple[int, ...]]:
    """How many elements are NaN, and the indices of the first; of a float array that holds one."""
    places = np.argwhere(np.isnan(array.astype(np.float32)))
    return len(places), tuple(int(index) for index in places[0])
