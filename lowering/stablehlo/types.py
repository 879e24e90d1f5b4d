"""Element types, tensor types and literals in MLIR's spelling."""

from __future__ import annotations

import math

from graphgen.ir import DType, Literal, TensorType
from graphgen.ir.dtype import c64, encode

_ELEMENT = {
    "pred": "i1",
    "s4": "i4",
    "s8": "i8",
    "s16": "i16",
    "s32": "i32",
    "s64": "i64",
    "u4": "ui4",
    "u8": "ui8",
    "u16": "ui16",
    "u32": "ui32",
    "u64": "ui64",
    "f8e4m3": "f8E4M3",
    "f8e4m3fn": "f8E4M3FN",
    "f8e5m2": "f8E5M2",
    "c64": "complex<f32>",
}
_text: dict[TensorType, str] = {}


def element_text(dtype: DType) -> str:
    """``i32`` for s32, ``i1`` for pred, ``f32`` for f32, ``f8E5M2`` for f8e5m2."""
    return _ELEMENT.get(dtype.name, dtype.name)


def type_text(type_: TensorType) -> str:
    """``tensor<2x4xf32>``."""
    found = _text.get(type_)
    if found is None:
        sizes = "".join(f"{size}x" for size in type_.dims)
        found = _text[type_] = f"tensor<{sizes}{element_text(type_.dtype)}>"
    return found


def dense_text(literal: Literal) -> str:
    """``dense<0.5>`` for a scalar, the raw bytes in hexadecimal for anything longer."""
    if literal.dtype is c64:
        return f'dense<"0x{literal.data.hex().upper()}">' if literal.data else "dense<>"
    values = literal.values()
    if len(values) == 1:
        return f"dense<{_number(values[0], literal.dtype)}>"
    if not values:
        return "dense<>"
    if literal.dtype.name == "pred":
        # MLIR packs i1 into bits where hexadecimal is concerned: write them out.
        return f"dense<{_nested([_number(v, literal.dtype) for v in values], literal.shape)}>"
    return f'dense<"0x{literal.data.hex().upper()}">'


def _nested(items: list[str], shape: tuple[int, ...]) -> str:
    """Row-major items in brackets, one pair for each dimension."""
    if not shape:
        return items[0]
    step = len(items) // shape[0]
    rows = [_nested(items[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
    return f"[{', '.join(rows)}]"


def _number(value: bool | int | float, dtype: DType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return f"{value:.17e}"
    # Infinities and NaN have no decimal form in MLIR.
    return "0x" + encode(dtype, value)[::-1].hex().upper()


def string(text: str) -> str:
    """A text in quotes, as MLIR escapes it."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
    return f'"{"".join(plain)}"'
