"""Tensor types and constants in MLIR's spelling, written and read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, DType, Literal, TensorType, symbol, tensor
from graphgen.ir.dtype import (
    DTYPES,
    dtype,
    encode,
    mlir_spelling,
    part_of,
    pred,
    quantized_name,
    scale_counts,
    token,
)
from graphgen.ir.small_float import FORMATS
from graphgen.limits import DIMS
from graphgen.lowering.mlir.syntax_tree import DenseAttr
from graphgen.numbers import whole_number

_ELEMENT = {
    "pred": "i1",
    **{f"s{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"u{bits}": f"ui{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    # The letters of a format are capitals, all but the first: f8E4M3FN.
    **{name: name[0] + name[1:].upper() for name in FORMATS},
    "c64": "complex<f32>",
    "c128": "complex<f64>",
}
# A size that a text leaves open, in a type that is read: it stands for any.
ANY_SIZE = symbol("unknown_size")
_TENSOR = re.compile(r"tensor<((?:[0-9?]++x)*+)([A-Za-z]\w*(?:<\w+>)?|!quant\.uniform<.+>)>")
_BOUNDED = re.compile(r"tensor<((?:[0-9?]++x)++)(.+),#stablehlo\.bounds<([0-9?,]+)>>")
_TOKEN = "!stablehlo.token"
_QUANTIZED = "!quant."
_BY_TEXT = {_ELEMENT.get(name, name): dtype for name, dtype in DTYPES.items()}
# An index has 64 bits where XLA compiles; it is written back as the integer.
_INDEX = {"index": DTYPES["s64"]}
_text: dict[TensorType, str] = {}


def element_text(dtype: DType) -> str:
    """Spell an element type: ``i32`` for s32, ``i1`` for pred, ``f8E5M2`` for f8e5m2."""
    return mlir_spelling(dtype.name) if dtype.is_quantized else _ELEMENT.get(dtype.name, dtype.name)


def type_text(type_: TensorType, dynamic: Sequence[bool] = ()) -> str:
    """Spell a type: ``tensor<2x4xf32>``.

    Args:
        type_: the type.
        dynamic: per dimension, whether its size is only bounded; empty where none is.
    """
    if any(dynamic):
        pairs = [*zip(type_.dims, dynamic, strict=True)]
        sizes = "".join(["?x" if bounded else f"{size}x" for size, bounded in pairs])
        bounds = ", ".join([str(size) if bounded else "?" for size, bounded in pairs])
        return f"tensor<{sizes}{element_text(type_.dtype)}, #stablehlo.bounds<{bounds}>>"
    found = _text.get(type_)
    if found is None and type_.dtype is token:
        found = _text[type_] = _TOKEN
    if found is None:
        sizes = "".join(f"{size if isinstance(size, int) else '?'}x" for size in type_.shape)
        found = _text[type_] = f"tensor<{sizes}{element_text(type_.dtype)}>"
    return found


def dense_text(literal: Literal) -> str:
    """Spell a constant: ``dense<0.5>`` for a scalar, else the raw bytes in hexadecimal."""
    if not literal.data:
        return "dense<>"
    if len(literal.data) == literal.dtype.bytes:
        return f"dense<{_single(literal)}>"
    values = literal.values() if literal.dtype.name == "pred" else ()
    if literal.dtype.name == "pred":
        # MLIR packs i1 into bits in hexadecimal: write the elements out.
        return f"dense<{_nested([_number(v, literal.dtype) for v in values], literal.shape)}>"
    return f'dense<"0x{literal.data.hex().upper()}">'


def _single(literal: Literal) -> str:
    """Spell the only element."""
    if not literal.dtype.is_complex:
        return _number(literal.values()[0], literal.dtype)
    (value,), part = literal.complex_values(), part_of(literal.dtype)
    return f"({_number(value.real, part)}, {_number(value.imag, part)})"


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
    plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    return f'"{text}"' if plain else string_of(text.encode())


def string_of(data: bytes) -> str:
    """Quote bytes, which need not be text, with MLIR's escapes."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
    return f'"{"".join(plain)}"'


@lru_cache(maxsize=8192)
def read_tensor_type(text: str) -> TensorType:
    """Parse ``tensor<2x4xf32>``, or the type of a token.

    A size that the text leaves open is :data:`ANY_SIZE`.

    Raises:
        GraphgenError: GG0101 for an element type that is not modelled, GG0201 for any other text.
    """
    found = _TENSOR.fullmatch(text.replace(" ", ""))
    if found is None:
        if text == _TOKEN:
            return tensor(token)
        raise GraphgenError("GG0201", f"'{text}' is not the type of a dense tensor")
    sizes = _sizes(found[1].split("x"))
    if found[2].startswith(_QUANTIZED):
        return _quantized_type(found[2], sizes)
    element = _BY_TEXT.get(found[2]) or _INDEX.get(found[2])
    if element is None:
        known = ", ".join(_BY_TEXT)
        raise GraphgenError("GG0101", f"unknown element type '{found[2]}'", help=f"known: {known}")
    return tensor(element, sizes)


def _sizes(texts: Sequence[str]) -> list[Dim]:
    """The sizes of a type (GG0102)."""
    if len(texts) > DIMS.most + 1:
        raise GraphgenError("GG0102", f"a type of {len(texts) - 1} sizes; {DIMS}")
    try:
        return [ANY_SIZE if size == "?" else whole_number(size) for size in texts if size]
    except ValueError as error:
        raise GraphgenError("GG0102", f"a size of a type: {error}") from error


def _quantized_type(text: str, sizes: Sequence[Dim]) -> TensorType:
    """A tensor of quantized elements, whose scales fit its sizes (GG0101)."""
    name = quantized_name(text)
    axis, count = scale_counts(name) or (-1, 0)
    if axis >= len(sizes) or (axis >= 0 and sizes[axis] != count):
        what = f"{text} has {count} scales along dimension {axis} of {list(sizes)}"
        raise GraphgenError("GG0101", what)
    return tensor(dtype(name), sizes)


@lru_cache(maxsize=4096)
def read_bounded_type(text: str) -> tuple[TensorType, tuple[bool, ...]]:
    """Parse ``tensor<?x4xf32, #stablehlo.bounds<8, ?>>``, or a type without bounds.

    Returns:
        The type with the bounds as sizes, and whether each size is only bounded; empty where none
        is.

    Raises:
        GraphgenError: those of :func:`read_tensor_type`; GG0102 for a dynamic size without a
            bound, and for a bound of a fixed one.
    """
    found = _BOUNDED.fullmatch(text.replace(" ", ""))
    if found is None:
        return read_tensor_type(text), ()
    sizes, bounds = found[1].split("x")[:-1], found[3].split(",")
    if len(sizes) != len(bounds) or any(
        (size == "?") == (bound == "?") for size, bound in zip(sizes, bounds, strict=True)
    ):
        raise GraphgenError("GG0102", f"{text}: each dynamic size needs a bound, a fixed one none")
    whole = [bound if size == "?" else size for size, bound in zip(sizes, bounds, strict=True)]
    type_ = read_tensor_type(f"tensor<{''.join([f'{size}x' for size in whole])}{found[2]}>")
    return type_, tuple([size == "?" for size in sizes])


def fits_type(type_: TensorType, stated: TensorType) -> bool:
    """A type is the stated one, where that states its sizes."""
    if type_ is stated:
        return True
    if type_.dtype is not stated.dtype or type_.rank != stated.rank:
        return False
    return all(
        size is ANY_SIZE or size == own or not isinstance(own, int)
        for own, size in zip(type_.shape, stated.shape, strict=True)
    )


def is_open(type_: TensorType) -> bool:
    """A type of which some size is not a number."""
    return not all(isinstance(size, int) for size in type_.shape)


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
        # A complex number is two items.
        data = b"".join([_encode(part_of(type_.dtype), item) for item in value.items])
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
    if count > 1 and len(data) == count:
        # As newer releases of MLIR write i1: a byte each.
        return bytes([byte & 1 for byte in data])
    # Older ones pack i1 into bits, lowest first; one byte of all ones or zeros is a splat.
    if len(data) == 1 and data[0] in (0, 255) and count != 8:
        return bytes([data[0] & 1])
    bits = ((data[i // 8] >> (i % 8)) & 1 for i in range(min(count, 8 * len(data))))
    return bytes(bits)
