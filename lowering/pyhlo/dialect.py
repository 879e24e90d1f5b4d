"""The PyHLO dialect: one row per op, with its op of the IR and its attributes.

Ops that are several ops of the IR, or have computations, are functions beside rows of their files.
To add an op, add its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from graphgen.errors import GraphgenError, did_you_mean
from graphgen.ir import DType, Literal, Value
from graphgen.ir.dtype import f32, pred, s32
from graphgen.lowering.codec import by_name
from graphgen.lowering.pyhlo.attributes import AttrReader
from graphgen.lowering.pyhlo.composite_ops import COMPOSITE_ROWS
from graphgen.lowering.pyhlo.control import CONTROL_ROWS
from graphgen.lowering.pyhlo.op_row import (
    PyHloField,
    PyHloRow,
    custom_row,
    groups,
    integers,
    one_dimension,
    only,
    row,
    text,
    write_row,
)
from graphgen.lowering.pyhlo.reductions import REDUCTION_ROWS, reducer
from graphgen.lowering.pyhlo.shapes import PyHloValue, mistake
from graphgen.lowering.pyhlo.trace_context import PyHloCall
from graphgen.ops import OPS, Trait, ops_with

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


def _parameter(c: PyHloCall) -> PyHloValue:
    return c.trace.parameter(c.stated, c.attrs.integer("parameter_number"))


def _constant(c: PyHloCall) -> Sequence[Value]:
    return [c.b.op("constant", value=literal_of(c.stated.dtype.element, c.attrs))]


def _broadcast(c: PyHloCall) -> Sequence[Value]:
    """Write a broadcast; as in HLO, a dimension of size 1 is not stretched."""
    (value,) = c.values(1)
    dims = c.attrs.integers("dimensions", ())
    for size, target in zip(value.shape, dims, strict=False):
        if 0 <= target < len(c.stated.sizes) and c.stated.sizes[target] != size:
            what = f"Broadcast: size {size} of {c.operands[0].text} is not {c.stated.sizes[target]}"
            raise mistake("GG0105", f"{what} (dimension {target} of {c.stated.text})")
    return [c.b.broadcast_in_dim(value, c.stated.sizes, dims)]


def _dot(c: PyHloCall) -> Sequence[Value]:
    """Write a product; sums are rounded to the stated element type."""
    lhs, rhs = c.values(2)
    numbers = c.attrs.message("dot_dimension_numbers")
    contracting, batch = (
        (
            numbers.integers(f"lhs_{kind}_dimensions", ()),
            numbers.integers(f"rhs_{kind}_dimensions", ()),
        )
        for kind in ("contracting", "batch")
    )
    numbers.finish()
    stated = c.stated.dtype.element
    if lhs.dtype is rhs.dtype:
        return [c.b.dot_general(lhs, rhs, contracting, batch, stated)]
    wide = _common(lhs.dtype, rhs.dtype, stated)
    pair = [item if item.dtype is wide else c.b.convert(item, wide) for item in (lhs, rhs)]
    kept = wide if wide.is_float and not stated.is_float else stated
    made = c.b.dot_general(pair[0], pair[1], contracting, batch, kept)
    return [made if kept is stated else c.b.convert(made, stated)]


def _common(one: DType, other: DType, stated: DType) -> DType:
    """The type in which XLA multiplies two: the float one, the wider float, the integer stated."""
    if one.is_float is not other.is_float:
        return one if one.is_float else other
    if one.is_float:
        wider = one if one.bits > other.bits else other
        return wider if one.bits != other.bits else f32
    return stated if stated.is_integer else s32


def _slice(c: PyHloCall) -> Sequence[Value]:
    (value,) = c.values(1)
    ranges = c.attrs.messages("slice_dimensions")
    starts = tuple(item.integer("start", 0) for item in ranges)
    limits = tuple(item.integer("limit") for item in ranges)
    strides = tuple(item.integer("stride", 1) for item in ranges)
    kept = strides if any(stride != 1 for stride in strides) else ()
    return [c.b.op("slice", value, start_indices=starts, limit_indices=limits, strides=kept)]


def _gather(c: PyHloCall) -> Sequence[Value]:
    value, indices = c.values(2)
    numbers = c.attrs.message("gather_dimension_numbers")
    result = c.b.op(
        "gather",
        value,
        indices,
        offset_dims=numbers.integers("offset_dims", ()),
        collapsed_slice_dims=numbers.integers("collapsed_slice_dims", ()),
        start_index_map=numbers.integers("start_index_map"),
        index_vector_dim=numbers.integer("index_vector_dim", 0),
        slice_sizes=c.attrs.integers("gather_slice_sizes"),
    )
    numbers.finish()
    return [result]


def _tuple(c: PyHloCall) -> Sequence[Value]:
    return [value for item in c.operands for value in item.values]


def _element(c: PyHloCall) -> Sequence[Value]:
    index = c.attrs.integer("tuple_index")
    if len(c.operands) != 1 or not 0 <= index < len(c.operands[0].members or ()):
        given = c.operands[0].text if c.operands else "nothing"
        raise mistake("GG0105", f"there is no element {index} in {given}")
    return [c.operands[0].values[index]]


def _replica_id(c: PyHloCall) -> Sequence[Value]:
    return c.b.emit("hlo.opaque", (), {"opcode": "replica-id", "results": c.stated.types}).results


def _copy(c: PyHloCall) -> Sequence[Value]:
    return c.values(1)


def _select(c: PyHloCall) -> Sequence[Value]:
    """Write a select; a scalar predicate holds for all elements."""
    which, yes, no = c.values(3)
    if which.type.rank == 0 and which.dtype is pred and yes.type.rank:
        which = c.b.broadcast_in_dim(which, yes.shape, ())
    return [c.b.select(which, yes, no)]


def _all_to_all(c: PyHloCall) -> Sequence[Value]:
    """Write an exchange that splits and concatenates one dimension."""
    (value,) = c.values(1)
    dim = only(c)
    return [c.b.all_to_all(value, c.attrs.groups("replica_groups"), dim, dim)]


def _kind(op: str) -> PyHloField:
    """The reducer of a collective."""
    return PyHloField("kind", lambda c: reducer(c, op))


# PyHLO's names that are not the IR's in camel case.
_SHORT = {
    "exponential": "Exp",
    "exponential_minus_one": "Expm1",
    "log_plus_one": "Log1p",
    "sine": "Sin",
    "cosine": "Cos",
}
ELEMENTWISE_ROWS: Final[Sequence[PyHloRow]] = [
    row(
        _SHORT.get(name, "".join(part.capitalize() for part in name.split("_"))),
        name,
        len(OPS[name].operands),
    )
    for name in ops_with(Trait.ELEMENTWISE)
    if not (OPS[name].attrs or OPS[name].composite or name == "select")
]
ROWS: Final[Sequence[PyHloRow]] = (
    *ELEMENTWISE_ROWS,
    row("Reshape", "reshape", 1, inferred=("shape",)),
    row("Convert", "convert", 1, inferred=("dtype",)),
    row("BitcastConvert", "bitcast_convert", 1, inferred=("dtype",)),
    row("Compare", "compare", 2, text("direction", "comparison_direction")),
    row("Iota", "iota", 0, one_dimension("dimension"), inferred=("dtype", "shape")),
    row("Transpose", "transpose", 1, integers("permutation")),
    row("Reverse", "reverse", 1, integers("dimensions")),
    row("Concatenate", "concatenate", None, one_dimension("dimension")),
    row("DynamicSlice", "dynamic_slice", None, integers("slice_sizes", "dynamic_slice_sizes")),
    row("DynamicUpdateSlice", "dynamic_update_slice", None),
    row("AllReduce", "all_reduce", 1, _kind("all_reduce"), groups()),
    row("AllGather", "all_gather", 1, groups(), one_dimension("dimension")),
    row(
        "ReduceScatter",
        "reduce_scatter",
        1,
        _kind("reduce_scatter"),
        groups(),
        one_dimension("dimension"),
    ),
    custom_row("AllToAll", _all_to_all),
    custom_row("Parameter", _parameter),
    custom_row("Constant", _constant),
    custom_row("Broadcast", _broadcast),
    custom_row("Select", _select),
    custom_row("Dot", _dot),
    custom_row("Slice", _slice),
    custom_row("Gather", _gather),
    custom_row("Tuple", _tuple),
    custom_row("GetTupleElement", _element),
    custom_row("ReplicaId", _replica_id),
    custom_row("Copy", _copy),
    *REDUCTION_ROWS,
    *COMPOSITE_ROWS,
    *CONTROL_ROWS,
)
BY_NAME: Final = by_name(ROWS)
# Arithmetic of truth values, as XLA compiles it.
_OF_TRUTH: Final = {"Add": "Or", "Maximum": "Or", "Multiply": "And", "Minimum": "And"}


def write_op(name: str, c: PyHloCall) -> Sequence[Value] | PyHloValue:
    """Write an op by its name (GG0103 with the nearest names)."""
    found = BY_NAME.get(name)
    if name in _OF_TRUTH and c.operands and c.operands[0].dtype.name == "pred":
        found = BY_NAME[_OF_TRUTH[name]]
    if found is None:
        wanted = did_you_mean(name, BY_NAME) or "see the ops of PyHLO"
        raise mistake("GG0103", f"PyHLO has no op '{name}'", help=wanted)
    return write_row(found, c)
