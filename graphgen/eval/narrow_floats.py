"""Ends of the range of floats of 8 bits and fewer, for numbers that are not rounded to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from graphgen.ir.small_float import FORMATS, SmallFormat, Special

Doubles = npt.NDArray[Any]


def within_range(x: Doubles, name: str) -> Doubles:
    """Numbers as a conversion to a narrow type leaves them, but for its rounding.

    A number that rounds to a finite one is unchanged. A larger one becomes an infinity, NaN, or the
    end of the range, as the type has it.

    Args:
        x: float64 numbers.
        name: of the type, in HLO's spelling.
    """
    form = FORMATS[name]
    if form.special is Special.NONE:
        # Without a code for NaN there is zero.
        return np.clip(np.where(np.isnan(x), -0.0, x), -form.finite[-1], form.finite[-1])
    limit, included = _last_rounded_down(form)
    size = np.abs(x)
    inside = (size <= limit) if included else (size < limit)
    if not form.signed:
        inside &= x > 0
    if inside.all():
        return x
    beyond = np.copysign(np.inf, x) if form.special is Special.IEEE else np.nan
    return np.where(inside, x, np.where(np.isnan(x), x, beyond))


def _last_rounded_down(form: SmallFormat) -> tuple[float, bool]:
    """The magnitude half a step beyond the largest number, and whether it rounds to that number."""
    largest = form.finite[-1]
    # frexp's fraction is in [1/2, 1).
    step = math.ldexp(1.0, math.frexp(largest)[1] - 1 - form.mantissa)
    # A tie goes to the even code; of powers of two to the greater one.
    return largest + step / 2, form.signed and (len(form.finite) - 1) % 2 == 0
