"""Elements of every type as numbers, and two arrays of them compared; no NumPy."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from graphgen.runtime.kit_runner.kit_types import Comparison, KitTensor

# By type: bytes of an element, and how `struct` reads it.
_STRUCT = {
    "pred": (1, "?"),
    "s8": (1, "b"),
    "u8": (1, "B"),
    "s16": (2, "h"),
    "u16": (2, "H"),
    "s32": (4, "i"),
    "u32": (4, "I"),
    "s64": (8, "q"),
    "u64": (8, "Q"),
    "f16": (2, "e"),
    "f32": (4, "f"),
    "f64": (8, "d"),
    "c64": (4, "f"),
    "c128": (8, "d"),
}
# Bits of the exponent and of the mantissa; whether the highest exponent holds numbers.
_SMALL = {"f8e4m3": (4, 3, False), "f8e4m3fn": (4, 3, True), "f8e5m2": (5, 2, False)}
# Types that a device without 64-bit elements may hold as those of 32 bits.
NARROWED = {"s64": "s32", "u64": "u32", "f64": "f32"}


def element_bytes(kind: str) -> int:
    """Bytes of an element; 0 for a type that is not known here."""
    if kind in _SMALL:
        return 1
    if kind == "bf16":
        return 2
    return {"c64": 8, "c128": 16}.get(kind) or _STRUCT.get(kind, (0, ""))[0]


def numbers(kind: str, data: bytes) -> Sequence[float]:
    """The elements of an array; of complex numbers the parts.

    Raises:
        ValueError: for a type that is not known here, or for a part of an element.
    """
    size = element_bytes(kind)
    if not size or len(data) % size:
        raise ValueError(f"{len(data)} bytes are not whole elements of {kind}")
    if kind in _SMALL:
        table = [_small(code, *_SMALL[kind]) for code in range(256)]
        return [table[code] for code in data]
    if kind == "bf16":
        wide = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
        return struct.unpack(f"<{len(data) // 2}f", wide)
    if kind == "pred":
        return [1.0 if code else 0.0 for code in data]
    width, code = _STRUCT[kind]
    return struct.unpack(f"<{len(data) // width}{code}", data)


def _small(code: int, exponent_bits: int, mantissa_bits: int, finite: bool) -> float:
    """An element of 8 bits; a type that is finite has one NaN and no infinity."""
    top, bias = (1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1
    sign = -1.0 if code >> 7 else 1.0
    exponent = code >> mantissa_bits & top
    mantissa = code & ((1 << mantissa_bits) - 1)
    if exponent == top and finite and mantissa == (1 << mantissa_bits) - 1:
        return math.nan
    if exponent == top and not finite:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    whole = mantissa + (1 << mantissa_bits)
    return sign * math.ldexp(whole, exponent - bias - mantissa_bits)


def compared(wanted: KitTensor, got: bytes, want: bytes) -> Comparison:
    """A result beside the expected one, element by element."""
    kind, note = wanted["dtype"], ""
    found: Comparison = {
        "name": wanted["name"], "right": False, "wrong": 0, "count": 0, "worst": 0.0, "at": -1,
        "got": "", "want": "", "note": "",
    }  # fmt: skip
    read_as = kind
    if kind in NARROWED and 2 * len(got) == len(want):
        read_as, note = NARROWED[kind], f"the device gave {NARROWED[kind]}"
    elif len(got) != len(want):
        found["note"] = f"{len(got)} bytes instead of {len(want)}"
        return found
    left, right = numbers(read_as, got), numbers(kind, want)
    found["count"], found["note"] = len(right), note
    for at, (one, other) in enumerate(zip(left, right)):  # noqa: B905 - Python 3.9
        error = _error(one, other, wanted["rtol"], wanted["atol"])
        found["wrong"] += error > 1
        if error > found["worst"] or (error > 1 and found["at"] < 0):
            found["worst"], found["at"] = min(error, 1e300), at
            found["got"], found["want"] = repr(one), repr(other)
    found["right"] = not found["wrong"]
    return found


def _error(got: float, want: float, rtol: float, atol: float) -> float:
    """The distance in units of what is allowed: above 1, the element is wrong."""
    if got == want or (got != got and want != want):
        return 0.0
    allowed = atol + rtol * abs(want)
    distance = abs(got - want)
    if not math.isfinite(distance) or not math.isfinite(allowed) or allowed == 0:
        return math.inf
    return distance / allowed
