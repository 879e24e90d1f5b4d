"""Tensor types and constants from MLIR's spelling."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Literal, TensorType, tensor
from graphgen.ir.dtype import DTYPES, encode, pred
from graphgen.lowering.stablehlo.read_tree import Dense
from graphgen.lowering.stablehlo.types import element_text

_TENSOR = re.compile(r"tensor<((?:\d+x)*)([A-Za-z]\w*)>")
_BY_TEXT = {element_text(dtype): dtype for dtype in DTYPES.values()}


@lru_cache(maxsize=8192)
def read_tensor_type(text: str) -> TensorType:
    """``tensor<2x4xf32>`` as a type.

    Raises:
        GraphgenError: GG0101 for an element type that is not modelled, GG0102 for dynamic sizes,
            GG0201 for what is no tensor.
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


def read_literal(value: Dense) -> Literal:
    """The elements of ``dense<...>``; a splat has one (its shape is then ``()``).

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
    # MLIR packs i1 into bits, the lowest first; one byte of all ones or zeros is a splat.
    if len(data) == 1 and data[0] in (0, 255) and count != 8:
        return bytes([data[0] & 1])
    bits = ((data[i // 8] >> (i % 8)) & 1 for i in range(min(count, 8 * len(data))))
    return bytes(bits)
