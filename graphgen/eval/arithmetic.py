"""In which NumPy types a program is evaluated: its own, or all floats in one wide type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from graphgen.ir import DType, Literal
from graphgen.ir.dtype import f8e4m3fn, f32, lowest

# The element type is known only from the program, so NumPy's static element type says nothing.
Array = npt.NDArray[Any]

NUMPY: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    "s4": np.dtype(ml_dtypes.int4),
    "s8": np.dtype(np.int8),
    "s16": np.dtype(np.int16),
    "s32": np.dtype(np.int32),
    "s64": np.dtype(np.int64),
    "u4": np.dtype(ml_dtypes.uint4),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
}
FOUR_BITS = (NUMPY["s4"], NUMPY["u4"])
# What a type is computed in: NumPy itself has no arithmetic for these.
_WIDER: dict[np.dtype[Any], np.dtype[Any]] = {
    **{NUMPY[n]: NUMPY["f32"] for n in ("f8e4m3", "f8e4m3fn", "f8e5m2", "f16", "bf16")},
    NUMPY["s4"]: NUMPY["s8"],
    NUMPY["u4"]: NUMPY["u8"],
}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type with the same elements."""
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
    """

    wide: np.dtype[Any] | None = None

    def dtype(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy type values of ``dtype`` are held in."""
        if self.wide is not None and dtype.is_float:
            return self.wide
        return NUMPY[dtype.name]

    def literal(self, literal: Literal) -> Array:
        """A literal as an array."""
        data = np.frombuffer(literal.data, NUMPY[literal.dtype.name]).reshape(literal.shape)
        return cast(Array, data.astype(self.dtype(literal.dtype)))

    def scalar(self, value: float) -> Array:
        """A float attribute: an f32, as the constant is that a decomposition makes of it."""
        return np.asarray(np.float32(value), self.dtype(f32))

    def round(self, x: Array, dtype: DType) -> Array:
        """``x`` in the type that holds ``dtype``."""
        return x.astype(self.dtype(dtype))

    def whole(self, x: Array) -> Array:
        """The nearest whole numbers, even ones for ties; ``x`` itself where nothing is rounded."""
        return np.rint(x) if self.wide is None else x

    def quantized(self, x: Array, dtype: DType) -> Array | None:
        """Floats as an 8-bit integer type carries them unrounded; ``None`` where it rounds them."""
        if self.wide is None or dtype.bits != 8 or not dtype.is_integer:
            return None
        low, high = ends(NUMPY[dtype.name])
        return np.clip(x.astype(self.wide), low - 0.5, high + 0.5)

    def accumulator(self, *operands: Array) -> np.dtype[Any]:
        """The type sums are taken in: f32 for smaller floats, else the operands' own."""
        kind = operands[0].dtype
        return _WIDER.get(kind, kind)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """True for integer types, the 4-bit ones included, which NumPy does not count among its own."""
    return _WIDER.get(dtype, dtype).kind in "iu"


def widened(x: Array) -> Array:
    """``x`` in the type it is computed in: itself, save for 4-bit integers and small floats."""
    return x.astype(_WIDER.get(x.dtype, x.dtype), copy=False)


def ends(dtype: np.dtype[Any]) -> tuple[float | int, float | int]:
    """The lowest and the highest value of a type; infinite where it has infinities."""
    if is_integer(dtype):
        limits = ml_dtypes.iinfo(dtype)
        return int(limits.min), int(limits.max)
    if dtype == NUMPY["f8e4m3fn"]:
        return lowest(f8e4m3fn), -lowest(f8e4m3fn)
    return -np.inf, np.inf


NATIVE = Arithmetic()
MEANING = Arithmetic(np.dtype(np.float64))
