"""Floats of eight bits and fewer: the value of each code, and the code nearest to a value.

A format is its table of values, so that reading is a look-up and rounding a search. Layouts are
those of the OCP specifications of 8-bit floating point (E4M3FN, E5M2) and of microscaling formats
(E2M1FN, E2M3FN, E3M2FN, E8M0FNU), those of IEEE 754's rules applied to few bits, which is what XLA
calls F8E4M3 (largest value 240 rather than 448), and those with one NaN and one zero (FNUZ).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Special(Enum):
    """The codes of a format that are not finite numbers."""

    # The last exponent means infinity and NaN, as in IEEE 754.
    IEEE = "ieee"
    # All bits set, with either sign, is NaN; nothing is infinite.
    LAST = "last"
    # The code of -0 is NaN; nothing is infinite and zero has no sign.
    MINUS_ZERO = "minus zero"
    # Every code is a finite number.
    NONE = "none"


@dataclass(frozen=True)
class SmallFormat:
    """One format.

    Attributes:
        exponent: bits of the exponent.
        mantissa: bits of the mantissa.
        bias: what is subtracted from the exponent.
        special: the codes that are not finite.
        signed: with a sign bit; without one zero is missing as well, as all but powers of 2 are.
    """

    exponent: int
    mantissa: int
    bias: int
    special: Special
    signed: bool = True

    @property
    def sign(self) -> int:
        """The sign bit; 0 without one."""
        return 1 << (self.exponent + self.mantissa) if self.signed else 0

    @cached_property
    def positive(self) -> list[float]:
        """The values of the codes without a sign."""
        return [self._value(code) for code in range(1 << (self.exponent + self.mantissa))]

    @cached_property
    def finite(self) -> list[float]:
        """The finite ones in increasing order, which is that of their codes."""
        return [value for value in self.positive if math.isfinite(value)]

    def _value(self, code: int) -> float:
        exponent, mantissa = code >> self.mantissa, code & ((1 << self.mantissa) - 1)
        last = (1 << self.exponent) - 1
        if self.special is Special.IEEE and exponent == last:
            return math.nan if mantissa else math.inf
        if self.special is Special.LAST and code == (1 << (self.exponent + self.mantissa)) - 1:
            return math.nan
        if exponent == 0 and self.signed:
            return math.ldexp(mantissa, 1 - self.bias - self.mantissa)
        return math.ldexp(mantissa + (1 << self.mantissa), exponent - self.bias - self.mantissa)

    @property
    def nan(self) -> int:
        """The NaN that arithmetic makes.

        Raises:
            OverflowError: the format has none.
        """
        match self.special:
            case Special.IEEE:
                return len(self.finite) | 1 << (self.mantissa - 1)
            case Special.LAST:
                return len(self.finite)
            case Special.MINUS_ZERO:
                return self.sign
            case Special.NONE:
                raise OverflowError("it has no NaN")


# By HLO's spelling.
FORMATS: dict[str, SmallFormat] = {
    "f4e2m1fn": SmallFormat(2, 1, 1, Special.NONE),
    "f6e2m3fn": SmallFormat(2, 3, 1, Special.NONE),
    "f6e3m2fn": SmallFormat(3, 2, 3, Special.NONE),
    "f8e3m4": SmallFormat(3, 4, 3, Special.IEEE),
    "f8e4m3": SmallFormat(4, 3, 7, Special.IEEE),
    "f8e4m3fn": SmallFormat(4, 3, 7, Special.LAST),
    "f8e4m3fnuz": SmallFormat(4, 3, 8, Special.MINUS_ZERO),
    "f8e4m3b11fnuz": SmallFormat(4, 3, 11, Special.MINUS_ZERO),
    "f8e5m2": SmallFormat(5, 2, 15, Special.IEEE),
    "f8e5m2fnuz": SmallFormat(5, 2, 16, Special.MINUS_ZERO),
    "f8e8m0fnu": SmallFormat(8, 0, 127, Special.LAST, signed=False),
}


def largest(name: str) -> float:
    """The largest finite value of the format."""
    return FORMATS[name].finite[-1]


def smallest(name: str) -> float:
    """The lowest finite value of the format."""
    return -largest(name) if FORMATS[name].signed else FORMATS[name].finite[0]


def read_small(name: str, data: bytes) -> list[float]:
    """The values of the codes; bits above those of the format do not count."""
    form = FORMATS[name]
    values, sign = form.positive, form.sign
    found = [
        -values[code & sign - 1] if code & sign else values[code % len(values)] for code in data
    ]
    if form.special is Special.MINUS_ZERO:
        found = [math.nan if code == sign else v for code, v in zip(data, found, strict=True)]
    return found


def small_code(name: str, value: float) -> int:
    """The code of the nearest value, ties to the even code; of powers of 2 to the greater one.

    Raises:
        OverflowError: the value is finite and rounds beyond the largest one, or the format does not
            have it: infinity, NaN, or a number that is not positive.
    """
    form = FORMATS[name]
    if math.isnan(value):
        return form.nan
    sign = form.sign if math.copysign(1.0, value) < 0 else 0
    size, finite = abs(value), form.finite
    if not form.signed and not 0 < value < math.inf:
        raise OverflowError(f"{value!r} is not positive")
    if math.isinf(value) and form.special is Special.IEEE:
        return sign | len(finite)
    code = _nearest(finite, size, up=not form.signed)
    unsigned_zero = code == 0 and form.special is Special.MINUS_ZERO
    return code if unsigned_zero else sign | code


def _nearest(finite: list[float], size: float, *, up: bool) -> int:
    above = bisect_left(finite, size)
    if above == len(finite):
        # Half a step beyond the end still rounds to it, unless its code is odd.
        half = (finite[-1] - finite[-2]) / 2
        if size > finite[-1] + half or (size == finite[-1] + half and (above - 1) % 2):
            raise OverflowError(f"{size!r} is beyond {finite[-1]}")
        return above - 1
    if finite[above] == size or above == 0:
        return above
    below, rest = size - finite[above - 1], finite[above] - size
    return above if rest < below or (rest == below and (up or above % 2 == 0)) else above - 1
