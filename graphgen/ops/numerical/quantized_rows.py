"""Rows of 8-bit numbers with the scale of each row in its last bytes."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ir.dtype import DType, lowest, u8
from graphgen.ops.factors import Notation
from graphgen.ops.opdef import Attr, define, float_operand, require
from graphgen.ops.traits import Trait

# Bytes of the f32 scale at the end of a row.
SCALE_BYTES = 4


def _check_element(dtype: DType) -> None:
    signed = dtype.is_float or (dtype.is_integer and lowest(dtype) < 0)
    require(dtype.bits == 8 and signed, f"element={dtype.name} is not a signed 8-bit type")


@define(
    "quantize_rows",
    "operand",
    Attr("element", "element"),
    Attr("limit", "number"),
    traits=(Trait.COMPOSITE,),
    factors=Notation("* D -> * N"),
)
def _quantize_rows(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Each row of the last dimension in D numbers of 8 bits, and its scale: [...,D] -> [...,D+4].

    ``scale = max |operand| / limit`` of the row, at least the smallest normal f32, and 0 of a row
    of zeros. The numbers are ``operand / scale``, for integers rounded to the nearest, of two as
    near the even one. The last four bytes are those of the f32 scale, lowest first. So a row of
    zeros is a row of bytes 0, as in a cache that nothing was written to. Computed in f32.

    Example:
        %q = quantize_rows(%x) element=s8 limit=127.0 : u8[B,S,2,8]
    """
    float_operand(types)
    element, limit = attrs.element("element"), attrs.number("limit")
    _check_element(element)
    require(
        0 < limit <= -lowest(element),
        f"limit={limit} is not in (0, {-lowest(element)}], the range of {element.name}",
    )
    require(types[0].rank > 0, f"{types[0].text} has no rows", 0)
    *rest, size = types[0].shape
    return (tensor(u8, (*rest, size + SCALE_BYTES)),)


@define(
    "dequantize_rows",
    "operand",
    Attr("element", "element"),
    Attr("dtype", "element"),
    traits=(Trait.COMPOSITE,),
    factors=Notation("* N -> * D"),
)
def _dequantize_rows(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The floats of rows that ``quantize_rows`` made: [...,D+4] -> [...,D].

    The numbers of type ``element`` times the scale of their row, computed in f32 and rounded once.

    Example:
        %x = dequantize_rows(%q) element=s8 dtype=f32 : f32[B,S,2,4]
    """
    element, dtype = attrs.element("element"), attrs.element("dtype")
    _check_element(element)
    require(dtype.is_float and dtype.bits > 8, f"makes floats of 16 bits or more, not {dtype.name}")
    require(types[0].dtype is u8, f"needs bytes, got {types[0].text}", 0)
    require(types[0].rank > 0, f"{types[0].text} has no rows", 0)
    *rest, size = types[0].shape
    fits = not isinstance(size, int) or size > SCALE_BYTES
    require(fits, f"{types[0].text}: a row ends in the {SCALE_BYTES} bytes of its scale", 0)
    return (tensor(dtype, (*rest, size - SCALE_BYTES)),)
