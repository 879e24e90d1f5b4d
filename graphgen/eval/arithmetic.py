"""In which NumPy types a program is evaluated: its own, or all floats in one wide type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Literal
from graphgen.ir.dtype import DTYPES, f32, has_infinity, highest, lowest
from graphgen.ir.small_float import FORMATS, SmallFormat, Special
from graphgen.ops.external import DEQUANTIZE

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


# The element type is known only from the program, so NumPy's static element type says nothing.
Array = npt.NDArray[Any]

_SMALL_FLOATS: dict[str, type[Any]] = {
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
    "f6e2m3fn": ml_dtypes.float6_e2m3fn,
    "f6e3m2fn": ml_dtypes.float6_e3m2fn,
    "f8e3m4": ml_dtypes.float8_e3m4,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
}
_FEW_BITS: dict[str, type[Any]] = {
    "s2": ml_dtypes.int2,
    "s4": ml_dtypes.int4,
    "u2": ml_dtypes.uint2,
    "u4": ml_dtypes.uint4,
}
NUMPY: dict[str, np.dtype[Any]] = {
    # Nothing reads what a token holds.
    "token": np.dtype(np.bool_),
    "pred": np.dtype(np.bool_),
    **{name: np.dtype(kind) for name, kind in _FEW_BITS.items()},
    "s8": np.dtype(np.int8),
    "s16": np.dtype(np.int16),
    "s32": np.dtype(np.int32),
    "s64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    **{name: np.dtype(kind) for name, kind in _SMALL_FLOATS.items()},
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
# The NumPy function that combines two elements, by kind of reduction.
COMBINE: dict[str, np.ufunc] = {
    "add": np.add,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
# Integers of less than a byte, which have a byte each.
FEW_BITS = tuple([NUMPY[name] for name in _FEW_BITS])
# The type that a narrow type is computed in: NumPy has no arithmetic for these.
_WIDER: dict[np.dtype[Any], np.dtype[Any]] = {
    **{NUMPY[name]: NUMPY["f32"] for name in _SMALL_FLOATS},
    **{NUMPY[name]: NUMPY["s8" if name[0] == "s" else "u8"] for name in _FEW_BITS},
}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type with the same elements.

    Raises:
        GraphgenError: GG0403 for quantized elements, which nothing here computes with.
    """
    if dtype.is_quantized:
        raise GraphgenError("GG0403", f"no op here computes with {dtype.name}", help=DEQUANTIZE)
    return NUMPY[dtype.name]


_NAMES = {kind: name for name, kind in NUMPY.items()}


def name_of(dtype: np.dtype[Any]) -> str:
    """Our name of a NumPy type."""
    return _NAMES[dtype]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Element types that floats are computed in.

    Attributes:
        wide: ``None`` to round as the program says. ``float64`` to compute every float in double
            precision and to round nothing, which shows what a program *means*: converts between
            floats are the identity, and so is rounding to whole numbers. A float converted to an
            8-bit integer stays the float that it is, within half a step of the type's range, so
            that quantized values times their scale are the numbers that were quantized: a wrong
            scale shows to the last digit, and values that do not fit their type show too. How far
            the rounding takes a result away is what computing with ``None`` shows.
        integers: whether a float converted to an 8-bit integer becomes that integer all the same,
            and rounding to whole numbers rounds: programs that are written in integers differ in
            the fractions that these do not have.
    """

    wide: np.dtype[Any] | None = None
    integers: bool = False

    def dtype(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy type values of ``dtype`` are held in."""
        if self.wide is not None and dtype.is_float:
            return self.wide
        if self.wide is not None and dtype.is_complex:
            return NUMPY["c128"]
        return numpy_dtype(dtype)

    def carries(self, x: Array) -> bool:
        """True for a float in double precision that stands for one of any type."""
        # NumPy takes a comparison with None for one with its default type.
        return self.wide is not None and x.dtype == self.wide

    def carries_pair(self, x: Array) -> bool:
        """True for two such floats, as a complex number, that stand for an integer of both."""
        return self.wide is not None and x.dtype == NUMPY["c128"]

    def literal(self, literal: Literal) -> Array:
        """A literal as an array."""
        data = np.frombuffer(literal.data, NUMPY[literal.dtype.name]).reshape(literal.shape)
        return cast(Array, data.astype(self.dtype(literal.dtype)))

    def scalar(self, value: float) -> Array:
        """A float attribute: an f32, as the constant is that a decomposition makes of it."""
        return np.asarray(np.float32(value), self.dtype(f32))

    def round(self, x: Array, dtype: DType) -> Array:
        """``x`` in the type that holds ``dtype``, within its range where nothing is rounded."""
        held = x.astype(self.dtype(dtype))
        narrow = self.wide is not None and dtype.is_float and dtype.bits <= 8
        return within_range(held, dtype.name) if narrow else held

    def whole(self, x: Array) -> Array:
        """The nearest whole numbers, even ones for ties; ``x`` itself where nothing is rounded."""
        return np.rint(x) if self.wide is None or self.integers else x

    def quantized(self, x: Array, dtype: DType) -> Array | None:
        """Floats as a narrow integer type carries them unrounded; ``None`` where it rounds them."""
        if self.wide is None or self.integers or dtype.bits > 8 or not dtype.is_integer:
            return None
        low, high = ends(NUMPY[dtype.name])
        return np.clip(x.astype(self.wide), low - 0.5, high + 0.5)

    def accumulator(self, *operands: Array) -> np.dtype[Any]:
        """The type sums are taken in: f32 for smaller floats, else the operands' own."""
        kind = operands[0].dtype
        return _WIDER.get(kind, kind)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """True for integer types, those of few bits included, which NumPy does not count as its own."""
    return _WIDER.get(dtype, dtype).kind in "iu"


def widened(x: Array) -> Array:
    """``x`` in the type it is computed in: itself, save for few bits and small floats."""
    wider = _WIDER.get(x.dtype)
    return x if wider is None else x.astype(wider)


def ends(dtype: np.dtype[Any]) -> tuple[float | int, float | int]:
    """The lowest and the highest value of a real type; infinite where it has infinities."""
    if is_integer(dtype):
        limits = ml_dtypes.iinfo(dtype)
        return int(limits.min), int(limits.max)
    ours = DTYPES[_NAMES[dtype]]
    return (-np.inf, np.inf) if has_infinity(ours) else (lowest(ours), highest(ours))


NATIVE = Arithmetic()
MEANING = Arithmetic(np.dtype(np.float64))
WITH_INTEGERS = Arithmetic(np.dtype(np.float64), integers=True)
