"""Constants of PyHLO: Python numbers, arrays, or the fields of a LiteralProto."""

from __future__ import annotations

from typing import cast

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Literal
from graphgen.lowering.pyhlo.attributes import AttrReader
from graphgen.lowering.pyhlo.shapes import mistake

# Fields of a LiteralProto that hold numbers; the others hold bytes.
_NUMBERS = {
    "pred": "preds", "s32": "s32s", "s64": "s64s", "u32": "u32s", "u64": "u64s", "f32": "f32s",
    "f64": "f64s",
}  # fmt: skip
_BYTES = {
    "s8": "s8s", "u8": "u8s", "f16": "f16s", "bf16": "bf16s", "s16": "s16s", "u16": "u16s",
    "f8e4m3fn": "f8e4m3fns", "f8e5m2": "f8e5m2s",
}  # fmt: skip


def literal_of(dtype: DType, a: AttrReader) -> Literal:
    """Read ``constant_value`` or ``literal`` (GG0104 for neither, both, or ragged lists)."""
    value = a.any("constant_value")
    if ("literal" in a.left) is (value is not None):
        raise mistake("GG0104", "Constant takes either 'constant_value' or 'literal'")
    if value is None:
        return _of_fields(dtype, a.message("literal"))
    numbers = _numbers(value)
    try:
        return Literal.of(dtype, _fitting(dtype, numbers))
    except GraphgenError as error:
        raise mistake("GG0104", f"Constant: {error.what}") from error


def _fitting(dtype: DType, value: object) -> object:
    """Convert numbers to the kind of ``dtype``: integral floats and booleans."""
    if isinstance(value, list | tuple):
        return [_fitting(dtype, item) for item in cast(list[object], value)]
    if dtype.name == "pred" and isinstance(value, int | float):
        return bool(value)
    if dtype.is_integer and isinstance(value, float) and value.is_integer():
        return int(value)
    return float(value) if dtype.is_float and isinstance(value, int) else value


def _of_fields(dtype: DType, fields: AttrReader) -> Literal:
    shape = fields.message("shape")
    dims = shape.integers("dimensions", ())
    if dtype.name in _NUMBERS:
        given = fields.any(_NUMBERS[dtype.name])
        flat = _numbers(given)
        if not isinstance(flat, list | tuple):
            raise mistake("GG0104", f"Constant: the literal has no '{_NUMBERS[dtype.name]}'")
        data = bytes(Literal.of(dtype, _fitting(dtype, cast(object, flat))).data)
    else:
        given = fields.any(_BYTES.get(dtype.name, ""))
        if not isinstance(given, bytes):
            wanted = _BYTES.get(dtype.name, "no field")
            raise mistake("GG0104", f"Constant: {dtype.name} is in the bytes of '{wanted}'")
        data = given
    count = 1
    for size in dims:
        count *= size
    if len(data) != count * dtype.bytes:
        what = f"{len(data) // dtype.bytes} elements for {dtype.name}{list(dims)}"
        raise mistake("GG0104", f"Constant: the literal has {what}")
    return Literal(dtype, dims, data)


def _numbers(value: object) -> object:
    """Numbers of Python, where an array of any library is given."""
    if type(value) in (int, float, bool, list):
        return value
    listed = getattr(value, "tolist", None)
    return value if listed is None else listed()
