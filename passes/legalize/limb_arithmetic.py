"""Limb arithmetic: integers as digits that floats hold exactly.

``x = sum over k of digit[k]·2^(w·k) mod 2^n``, digits of w bits each. Sums of digits are exact in
f32 as long as they stay below 2^24, and digits of at most 8 bits are exact in bf16.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import Kind, f32, s32, s64, u32, u64

# Types that neuronx-cc casts to floats or refuses.
WIDE = (s32, u32, s64, u64)
# Every whole number up to here is an f32.
_EXACT = 1 << 24


def width_for(terms: int, *, most: int, factors: int = 1) -> int:
    """Bits of a digit such that ``terms`` products of ``factors`` digits add up exactly in f32.

    0 if no width does.
    """
    for width in range(most, 0, -1):
        if terms * ((1 << width) - 1) ** factors < _EXACT:
            return width
    return 0


def digits(b: Builder, x: Value, width: int, *, signed: bool = False) -> list[Value]:
    """The digits of ``x`` from the lowest to the highest, integers of its own type.

    Args:
        b: makes the ops.
        x: integers.
        width: bits of a digit.
        signed: whether the highest one carries the sign; else all are at least 0.
    """
    bits = x.dtype.bits
    count = -(-bits // width)
    found: list[Value] = []
    for k in range(count):
        last = k + 1 == count
        sign = signed and last and x.dtype.kind is Kind.SIGNED
        shift = "shift_right_arithmetic" if sign else "shift_right_logical"
        part = b.binary(shift, x, k * width) if k else x
        found.append(part if last else b.binary("and", part, (1 << width) - 1))
    return found


def whole(b: Builder, parts: Sequence[Value], width: int, kind: DType) -> Value:
    """The integers of ``kind`` whose digits (or sums of digits, in f32) these are."""
    total: Value | None = None
    for k, part in enumerate(parts):
        term = b.convert(part, kind)
        if k:
            term = b.binary("shift_left", term, k * width)
        total = term if total is None else b.binary("add", total, term)
    assert total is not None
    return total


def stacked(b: Builder, parts: Sequence[Value]) -> Value:
    """The digits in f32 along a new first dimension."""
    if len(parts) == 1:
        return b.reshape(b.convert(parts[0], f32), (1, *parts[0].shape))
    rows = [b.reshape(b.convert(part, f32), (1, *part.shape)) for part in parts]
    return b.concatenate(rows, 0)


def unstacked(b: Builder, x: Value) -> list[Value]:
    """The slices of ``x`` along the first dimension, without it."""
    count = x.type.dims[0]
    if count == 1:
        return [b.reshape(x, x.shape[1:])]
    return [b.reshape(b.slice_dim(x, 0, k, k + 1), x.shape[1:]) for k in range(count)]
