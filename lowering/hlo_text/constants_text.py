"""Constants in HLO text: their elements, of every element type, to and from a LiteralProto."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import LiteralField
from graphgen.lowering.hlo_proto.literal import encode_literal, read_literal
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape, take_shape
from graphgen.lowering.hlo_text.text_values import inside, split_items

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ELIDED = "{...}"
_ITEM = re.compile(r"\([^()]*\)|[^\s,{}()]+(?:\([^()]*\))?")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# In infinities, NaNs and hexadecimal numbers.
_SPELLED = re.compile(r"[nx]", re.IGNORECASE)
_NAN = re.compile(r"([+-]?)nan(?:\((?:0x)?([0-9a-f]+)\))?", re.IGNORECASE)

# Element type -> the type of NumPy or ml_dtypes, of one byte at least.
_ARRAYS = {
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "f16": "float16",
    "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
    "bf16": "bfloat16", "f8e5m2": "float8_e5m2", "f8e4m3": "float8_e4m3",
    "f8e4m3fn": "float8_e4m3fn", "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e3m4": "float8_e3m4", "f8e8m0fnu": "float8_e8m0fnu", "f4e2m1fn": "float4_e2m1fn",
    "f6e3m2fn": "float6_e3m2fn", "f6e2m3fn": "float6_e2m3fn",
}  # fmt: skip
# Bits of integers of less than a byte: kept in the low bits of one.
_SMALL = {"s4": 4, "u4": 4, "s2": 2, "u2": 2, "s1": 1, "u1": 1}
# Bits of the mantissa of types whose NaNs have a payload.
_MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52, "f8e5m2": 2, "f8e4m3": 3, "f8e3m4": 4}


def _array_type(element: str) -> np.dtype[np.generic]:
    import ml_dtypes
    import numpy as np

    name = _ARRAYS[element]
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def parse_literal(text: str, shape: HloShape) -> bytes:
    """Parse a constant as a LiteralProto, without elements if the text elides them.

    Raises:
        GraphgenError: GG0201 for other elements than the shape has.
    """
    head = wire.delimited(LiteralField.SHAPE, write_shape(shape))
    if text.strip().startswith(ELIDED) or shape.element in ("token", "opaque"):
        return head
    if shape.is_tuple:
        items = split_items(_COMMENT.sub("", inside(text)))
        if len(items) != len(shape.members):
            raise GraphgenError("GG0201", f"{len(items)} elements for {shape.text}")
        parts = [_member(item, member) for item, member in zip(items, shape.members, strict=True)]
        return head + b"".join([wire.delimited(LiteralField.TUPLE_LITERALS, it) for it in parts])
    items: list[str] = _ITEM.findall(_COMMENT.sub("", text) if "/*" in text else text)
    if items and items[0].partition("[")[0] == shape.element and not items[0][0].isdigit():
        # Old texts repeat the shape in front.
        return parse_literal(text.strip()[take_shape(text.strip()) :], shape)
    count = math.prod(shape.dims)
    if len(items) == 1 and count != 1 and "{" not in text:
        items *= count
    if len(items) != count:
        raise GraphgenError("GG0201", f"{len(items)} elements for {shape.text}")
    data = _small(items, shape.element) if shape.element in _SMALL else _bytes(items, shape.element)
    return head + encode_literal(shape, data)


def _member(text: str, shape: HloShape) -> bytes:
    """A part of a tuple, which may have its shape in front."""
    stated = re.match(r"[a-z]\w*\[", text)
    return parse_literal(text[take_shape(text) :] if stated else text, shape)


def _small(items: Sequence[str], element: str) -> bytes:
    bits = _SMALL[element]
    low = -(1 << (bits - 1)) if element[0] == "s" else 0
    values = list(map(int, items))
    if any(not low <= value < low + (1 << bits) for value in values):
        raise GraphgenError("GG0201", f"a value that is none of {element}")
    return bytes([value & ((1 << bits) - 1) for value in values])


def _bytes(items: Sequence[str], element: str) -> bytes:
    """The elements as they lie in memory."""
    import numpy as np

    kind = _array_type(element)
    if element == "pred":
        return np.array([_truth(item) for item in items], np.bool_).tobytes()
    if element[0] in "su":
        wide = [int(item) for item in items]
        if element == "u64":
            # A negative number is taken as its bits.
            wide = [value + (1 << 64) if -(1 << 63) <= value < 0 else value for value in wide]
        return np.array(wide, kind).tobytes()
    if element[0] == "c":
        return np.array([_complex(item) for item in items], kind).tobytes()
    # Most constants are all decimals, which need no look at each.
    plain = _SPELLED.search("".join(items)) is None
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.array(list(map(float if plain else _float, items)), np.float64).astype(kind)
    if plain:
        return made.tobytes()
    for place, item in enumerate(items):
        match = _NAN.fullmatch(item)
        if match is not None:
            _set_nan(made, place, element, match)
    return made.tobytes()


def _set_nan(made: NDArray[np.generic], place: int, element: str, nan: re.Match[str]) -> None:
    """Give a NaN the sign and the payload of the text, which conversions may not keep."""
    import numpy as np

    mantissa = _MANTISSA.get(element)
    if mantissa is None:
        return
    width = made.dtype.itemsize
    payload = int(nan[2], 16) if nan[2] else 1 << (mantissa - 1)
    exponent = ((1 << (8 * width - 1)) - 1) >> mantissa << mantissa
    sign = (1 << (8 * width - 1)) if nan[1] == "-" else 0
    made.view(np.dtype(f"u{width}"))[place] = sign | exponent | payload


def _float(text: str) -> float:
    nan = _NAN.fullmatch(text)
    if nan is not None:
        return -math.nan if nan[1] == "-" else math.nan
    return float.fromhex(text) if "0x" in text else float(text)


def _truth(text: str) -> bool:
    if text not in ("true", "false", "0", "1"):
        raise GraphgenError("GG0201", f"'{text}' is neither true nor false")
    return text in ("true", "1")


def _complex(text: str) -> complex:
    parts = [_float(part.strip()) for part in text.strip("()").split(",")]
    return complex(parts[0], parts[1] if len(parts) == 2 else 0.0)


def show_literal(message: Message | None) -> str:
    """Print the elements of a LiteralProto, ``{...}`` where there are none."""
    if message is None:
        return ELIDED
    found = read_literal(message)
    shape, data = found.shape, found.data
    if shape.is_tuple:
        parts = message.messages(LiteralField.TUPLE_LITERALS)
        return f"({', '.join(map(show_literal, parts))})"
    if data is None:
        return ELIDED
    return _nested(_texts(bytes(data), shape.element), shape.dims)


def _texts(data: bytes, element: str) -> list[str]:
    import numpy as np

    if element in _SMALL:
        bits = _SMALL[element]
        sign = 1 << (bits - 1) if element[0] == "s" else 0
        return [str(((byte & ((1 << bits) - 1)) ^ sign) - sign) for byte in data]
    values = np.frombuffer(data, _array_type(element))
    if element == "pred":
        return ["true" if value else "false" for value in values.tolist()]
    if element[0] in "su":
        return list(map(str, values.tolist()))
    if element[0] == "c":
        single = element == "c64"
        return [f"({_shown(z.real, single)}, {_shown(z.imag, single)})" for z in values]
    single = element != "f64"
    wide = values.astype(np.float32 if single else np.float64)
    texts = [_shown(value, single) for value in wide]
    if element in _MANTISSA:
        for place in np.flatnonzero(np.isnan(wide)).tolist():
            texts[place] = _shown_nan(values, place, element)
    return texts


def _shown(value: np.generic | float, single: bool) -> str:
    """The shortest decimal that reads back as the same number."""
    import numpy as np

    number = np.float32(value) if single else np.float64(value)
    if np.isnan(number):
        return "-nan" if np.signbit(number) else "nan"
    text = repr(float(number)) if not single else str(number)
    # XLA reads ``-0`` as an integer, whose sign is lost.
    return text if text == "-0.0" else text.removesuffix(".0")


def _shown_nan(values: NDArray[np.generic], place: int, element: str) -> str:
    import numpy as np

    width, mantissa = values.dtype.itemsize, _MANTISSA[element]
    bits = int(values.view(np.dtype(f"u{width}"))[place])
    payload = bits & ((1 << mantissa) - 1)
    sign = "-" if bits >> (8 * width - 1) else ""
    return f"{sign}nan" if payload == 1 << (mantissa - 1) else f"{sign}nan(0x{payload:x})"


def _nested(texts: list[str], dims: tuple[int, ...]) -> str:
    if not dims:
        return texts[0]
    if 0 in dims:
        inner = [_nested([], dims[1:])] * dims[0] if len(dims) > 1 and dims[0] else []
        return "{" + ", ".join(inner) + "}"
    if not texts:
        # Below a dimension of size 0.
        return "{}"
    for size in reversed(dims):
        texts = [
            "{" + ", ".join(texts[start : start + size]) + "}"
            for start in range(0, len(texts), size)
        ]
    return texts[0]


def parse_stated_literal(text: str) -> bytes:
    """Parse ``s32[2]{0} {1, 2}`` or ``( s32[] 1, pred[1] {true} )``."""
    if text.startswith("("):
        members = [parse_stated_literal(item) for item in split_items(inside(text))]
        shapes = [Message(item).data(LiteralField.SHAPE) for item in members]
        shape = write_shape(HloShape("tuple", members=tuple(map(read_shape, shapes))))
        parts = [wire.delimited(LiteralField.TUPLE_LITERALS, item) for item in members]
        return wire.delimited(LiteralField.SHAPE, shape) + b"".join(parts)
    end = take_shape(text)
    return parse_literal(text[end:], parse_shape(text[:end]))


def show_stated_literal(found: Message) -> str:
    """The elements after their shape, member by member in a tuple."""
    if not found.has(LiteralField.SHAPE):
        return ""
    shape = read_literal(found).shape
    if shape.is_tuple:
        parts = found.messages(LiteralField.TUPLE_LITERALS)
        return f"( {', '.join(map(show_stated_literal, parts))} )"
    return f"{shape.text} {show_literal(found)}"
