"""Find values that are not finite numbers, fast enough to look at every weight that is loaded."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphgen.eval import Array

# Elements looked at in a row: their bits stay in a core's own cache.
_CHUNK: Final = 1 << 17
# By the bits of an element: an unsigned type, all bits but the sign, and the bits of infinity. What
# is above infinity is not a number; NumPy's own test is ten times slower on types of 16 bits.
_BITS: Final = {
    "float32": (np.uint32, 0x7FFFFFFF, 0x7F800000),
    "float16": (np.uint16, 0x7FFF, 0x7C00),
    "bfloat16": (np.uint16, 0x7FFF, 0x7F80),
}


def holds_nan(array: Array) -> bool:
    """Whether any element is NaN; False for types that have none or are not looked at."""
    return _beyond_infinity(array) > 0


def holds_infinity(array: Array) -> bool:
    """Whether any element is infinite and none is NaN; False for types not looked at."""
    return _beyond_infinity(array) == 0


def _beyond_infinity(array: Array) -> int:
    """The bits of the element that is farthest from zero, less those of infinity."""
    known = _BITS.get(array.dtype.name)
    if known is None:
        return -1
    unsigned, magnitude, infinity = known
    bits = np.ascontiguousarray(array).reshape(-1).view(unsigned)
    room = np.empty(min(_CHUNK, bits.size), unsigned)
    largest = 0
    for start in range(0, bits.size, _CHUNK):
        part = bits[start : start + _CHUNK]
        found = np.bitwise_and(part, unsigned(magnitude), out=room[: part.size])
        largest = max(largest, int(found.max()))
    return largest - infinity


def nan_places(array: Array) -> tuple[int, tuple[int, ...]]:
    """How many elements are NaN, and the indices of the first; of a float array that holds one."""
    places = np.argwhere(np.isnan(array.astype(np.float32)))
    return len(places), tuple(int(index) for index in places[0])
