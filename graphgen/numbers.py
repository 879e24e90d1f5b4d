"""Numbers of files, requests and command lines: read within stated limits.

Python's own functions take more than a file may hold: ``int`` takes other alphabets and stops at
4,300 digits with an error of its own, ``float`` takes NaN, and an integer beyond 1e308 overflows.
"""

from __future__ import annotations

import math
import re
from typing import TypeGuard

# Numbers beyond these fit no type of the formats that hold them.
MOST_COUNT = (1 << 31) - 1
MOST_SIZE = (1 << 63) - 1
# Exceptions of numbers that cannot be read, or do not fit where they stand.
BAD_NUMBER = (ValueError, OverflowError)
# Digits of such a number, also below zero or above it without a sign.
_MOST_DIGITS = 20
_WHOLE = re.compile(r"-?[0-9]+")


def whole_number(text: object, most: int = MOST_SIZE, least: int = 0) -> int:
    """A whole number in ASCII digits, with ``-`` before it where it may be below zero.

    Args:
        text: the digits.
        most: the largest number that is taken.
        least: the smallest number that is taken.

    Raises:
        ValueError: it is not such a number; the text says why, and can be shown to a user.
    """
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise ValueError(f"'{str(text)[:40]}' is not a whole number")
    if len(text.lstrip("-")) > _MOST_DIGITS and len(text.lstrip("-0")) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits is too large")
    number = int(text)
    if not least <= number <= most:
        raise ValueError(f"{number} is not in [{least}, {most}]")
    return number


def is_digits(text: object, most: int = MOST_SIZE) -> bool:
    """True for a text that :func:`whole_number` reads."""
    try:
        whole_number(text, most)
    except ValueError:
        return False
    return True


def signed_number(text: object, most: int = MOST_SIZE) -> int:
    """A whole number from ``-most - 1`` on; see :func:`whole_number`."""
    return whole_number(text, most, -most - 1)


def is_whole(value: object, most: int = MOST_SIZE, least: int = 0) -> bool:
    """True for an ``int`` from ``least`` to ``most``; ``True`` and 1.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_finite(value: object) -> TypeGuard[int | float]:
    """True for an ``int`` or ``float`` that is a number and fits a float."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def finite(value: object) -> float:
    """A finite number as a float, also from its text.

    Raises:
        ValueError: it is a boolean, no number, NaN, infinite or beyond the range of a float.
    """
    if isinstance(value, str):
        if len(value) > 400 or not value.isascii() or "_" in value:
            raise ValueError(f"'{value[:40]}' is not a number")
        value = float(value)
    if not is_finite(value):
        shown = "a number too large" if isinstance(value, int) else f"{value!r:.40}"
        raise ValueError(f"{shown} is not a finite number")
    assert isinstance(value, int | float)
    return float(value)
