"""Floats of eight bits: the value of each code, and the code nearest to a value.

A format is its table of 256 values, so that reading is a look-up and rounding a search. Layouts are
those of the OCP 8-bit floating point specification (E4M3 and E5M2) and of IEEE 754's rules applied
to 4 + 3 bits, which is what XLA calls F8E4M3 (largest value 240 rather than 448).
"""

from __future__ import annotations

import math
from bisect import bisect_left

# Name to bits of the mantissa, and whether the last exponent means infinity and NaN, as in IEEE
# 754; otherwise its only special code is the one with all bits set, a NaN.
_FORMATS = {"f8e4m3": (3, True), "f8e4m3fn": (3, False), "f8e5m2": (2, True)}


def _value(code: int, mantissa_bits: int, ieee: bool) -> float:
    """The value of a code below 128; the sign bit is added by the table."""
    exponent_bits = 7 - mantissa_bits
    bias = (1 << (exponent_bits - 1)) - 1
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    if ieee and exponent == (1 << exponent_bits) - 1:
        return math.nan if mantissa else math.inf
    if not ieee and code == 0x7F:
        return math.nan
    if exponent == 0:
        return math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)


_POSITIVE = {
    name: [_value(code, bits, ieee) for code in range(128)]
    for name, (bits, ieee) in _FORMATS.items()
}
# In increasing order, which is that of their codes.
_FINITE = {name: [v for v in values if math.isfinite(v)] for name, values in _POSITIVE.items()}
# The NaN that arithmetic makes.
_NAN = {"f8e4m3": 0x7C, "f8e4m3fn": 0x7F, "f8e5m2": 0x7E}


def largest(name: str) -> float:
    """The largest finite value of the format."""
    return _FINITE[name][-1]


def read_small(name: str, data: bytes) -> list[float]:
    """The values of the codes."""
    values = _POSITIVE[name]
    return [-values[code & 0x7F] if code & 0x80 else values[code] for code in data]


def small_code(name: str, value: float) -> int:
    """The code of the nearest value, ties to the even code.

    Raises:
        OverflowError: the value is finite and rounds beyond the largest one, or the format has no
            infinity to give.
    """
    if math.isnan(value):
        return _NAN[name]
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    size, finite = abs(value), _FINITE[name]
    if math.isinf(value) and _FORMATS[name][1]:
        return sign | len(finite)
    above = bisect_left(finite, size)
    if above == len(finite):
        # Half a step beyond the end still rounds to it, unless its code is odd.
        half = (finite[-1] - finite[-2]) / 2
        if size > finite[-1] + half or (size == finite[-1] + half and (above - 1) % 2):
            raise OverflowError(f"{value!r} is beyond {finite[-1]}")
        return sign | (above - 1)
    if finite[above] == size:
        return sign | above
    down, up = size - finite[above - 1], finite[above] - size
    return sign | (above if up < down or (up == down and above % 2 == 0) else above - 1)
