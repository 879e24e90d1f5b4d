"""Tensor types and constants in MLIR's spelling, written and read."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Literal, TensorType, tensor
from graphgen.ir.dtype import DTYPES, c64, encode, pred
from graphgen.lowering.stablehlo.text.syntax_tree import DenseAttr

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
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([A-Za-z]\w*)>")
_BY_TEXT = {_ELEMENT.get(name, name): dtype for name, dtype in DTYPES.items()}
_text: dict[TensorType, str] = {}


def element_text(dtype: DType) -> str:
    """Spell an element type: ``i32`` for s32, ``i1`` for pred, ``f8E5M2`` for f8e5m2."""
    return _ELEMENT.get(dtype.name, dtype.name)


def type_text(type_: TensorType) -> str:
    """Spell a type: ``tensor<2x4xf32>``."""
    found = _text.get(type_)
    if found is None:
        sizes = "".join(f"{size}x" for size in type_.dims)
        found = _text[type_] = f"tensor<{sizes}{element_text(type_.dtype)}>"
    return found


def dense_text(literal: Literal) -> str:
    """Spell a constant: ``dense<0.5>`` for a scalar, else the raw bytes in hexadecimal."""
    if literal.dtype is c64:
        return f'dense<"0x{literal.data.hex().upper()}">' if literal.data else "dense<>"
    values = literal.values()
    if len(values) == 1:
        return f"dense<{_number(values[0], literal.dtype)}>"
    if not values:
        return "dense<>"
    if literal.dtype.name == "pred":
        # MLIR packs i1 into bits in hexadecimal: write the elements out.
        return f"dense<{_nested([_number(v, literal.dtype) for v in values], literal.shape)}>"
    return f'dense<"0x{literal.data.hex().upper()}">'


def _nested(items: list[str], shape: tuple[int, ...]) -> str:
    """Put row-major items in brackets, one pair per dimension."""
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
    """Quote a text with MLIR's escapes."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
    return f'"{"".join(plain)}"'


@lru_cache(maxsize=8192)
def read_tensor_type(text: str) -> TensorType:
    """Parse ``tensor<2x4xf32>``.

    Raises:
        GraphgenError: GG0101 for an element type that is not modelled, GG0102 for dynamic sizes,
            GG0201 for any other text.
    """
    found = _TENSOR.fullmatch(text.replace(" ", ""))
    if found is None:
        if "?" in text:
            raise GraphgenError("GG0102", f"{text} has a dynamic size", help="only static are read")
        raise GraphgenError("GG0201", f"'{text}' is not the type of a dense tensor")
    dtype = _BY_TEXT.get(found[2])
    if dtype is None:
        known = ", ".join(_BY_TEXT)
        raise GraphgenError("GG0101", f"unknown element type '{found[2]}'", help=f"known: {known}")
    return tensor(dtype, [int(size) for size in found[1].split("x") if size])


def read_literal(value: DenseAttr) -> Literal:
    """Convert ``dense<...>`` to a literal; that of a splat has shape ``()``.

    Raises:
        GraphgenError: GG0104 for elements that do not fit the type.
    """
    type_ = read_tensor_type(value.type)
    count = math.prod(type_.dims)
    if value.hexadecimal:
        data = _from_hex(value.hexadecimal, type_.dtype, count)
    else:
        data = b"".join([_encode(type_.dtype, item) for item in value.items])
    if len(data) == type_.dtype.bytes != count * type_.dtype.bytes:
        return Literal(type_.dtype, (), data)
    if len(data) != count * type_.dtype.bytes:
        given = len(data) // type_.dtype.bytes
        raise GraphgenError("GG0104", f"a constant {type_.text} has {given} elements")
    return Literal(type_.dtype, type_.dims, data)


def _encode(dtype: DType, item: bool | int | float | str) -> bytes:
    if isinstance(item, str):
        try:
            return int(item, 16).to_bytes(dtype.bytes, "little")
        except OverflowError as error:
            raise GraphgenError("GG0104", f"{item} does not fit {dtype.name}") from error
    return encode(dtype, item if dtype.is_float or dtype is pred else int(item))


def _from_hex(text: str, dtype: DType, count: int) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise GraphgenError("GG0104", "bad hexadecimal digits in a constant") from error
    if dtype is not pred:
        return data
    # MLIR packs i1 into bits, lowest first; one byte of all ones or zeros is a splat.
    if len(data) == 1 and data[0] in (0, 255) and count != 8:
        return bytes([data[0] & 1])
    bits = ((data[i // 8] >> (i % 8)) & 1 for i in range(min(count, 8 * len(data))))
    return bytes(bits)
