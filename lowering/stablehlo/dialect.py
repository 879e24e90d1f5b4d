"""The StableHLO dialect: one row per op, from which it is emitted, read and parsed.

Ops in families of their own are in the files ``*_rows``. To add an op, add its row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from graphgen.composites import decompose, take_by_gather
from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, AttrValue, Literal, Op, Value, tensor
from graphgen.ir.dtype import pred, u8
from graphgen.lowering.codec import by_name, by_op
from graphgen.lowering.decompose import total_order_key
from graphgen.lowering.mlir.mlir_attributes import read_dense, read_dict
from graphgen.lowering.mlir.mlir_parser import ReadRegion
from graphgen.lowering.mlir.mlir_types import dense_text, read_literal, read_tensor_type, type_text
from graphgen.lowering.mlir.syntax_tree import DenseAttr, MlirOp, integers_of, word_of
from graphgen.lowering.mlir.tokens import MlirTokens, UnknownForm
from graphgen.lowering.stablehlo.assembly import parse_common_form
from graphgen.lowering.stablehlo.collective_rows import COLLECTIVE_ROWS
from graphgen.lowering.stablehlo.contraction_rows import CONTRACTION_ROWS
from graphgen.lowering.stablehlo.control_rows import CONTROL_ROWS
from graphgen.lowering.stablehlo.custom_call_rows import EXTERNAL_ROWS, read_shardy_op
from graphgen.lowering.stablehlo.dynamic_rows import DYNAMIC_ROWS
from graphgen.lowering.stablehlo.indexing_rows import INDEXING_ROWS
from graphgen.lowering.stablehlo.numerical_rows import BATCH_NORM_ROWS, NUMERICAL_ROWS
from graphgen.lowering.stablehlo.op_row import (
    BARE,
    StableHloField,
    StableHloRow,
    emit_row,
    field_list,
    fields_of,
    hint,
    integer,
    integer_of,
    integers,
    list_of,
    list_text,
    local,
    note_precision,
    read_row,
    result_type,
    signature,
)
from graphgen.lowering.stablehlo.opaque_rows import OPAQUE_ROWS, elided_constant
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.reduce_rows import REDUCE_ROW, SCALAR_FUNCTION_ROWS
from graphgen.lowering.stablehlo.window_rows import CONVOLUTION_ROW, REDUCTION_ROWS
from graphgen.ops import OPS, Trait, ops_with
from graphgen.ops.external import SILENT
from graphgen.ops.window import or_default

# A splat of more bytes than this becomes a scalar and a broadcast.
LARGE_SPLAT: Final = 1 << 16


def _emit_constant(op: Op, out: str, x: Sequence[str]) -> str:
    value = dense_text(op.attrs.literal("value"))
    return f"{out} = stablehlo.constant {value} : {type_text(op.results[0].type)}"


def _read_constant(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    value = node.attrs.get("value")
    if not isinstance(value, DenseAttr):
        raise GraphgenError("GG0104", f"{node.name} needs a dense 'value'")
    type_ = read_tensor_type(value.type)
    if value.missing:
        return [elided_constant(to, type_)]
    literal = read_literal(value)
    count = math.prod(type_.dims)
    if literal.shape == type_.dims:
        return [to.emit("constant", (), value=literal)]
    if count * type_.dtype.bytes > LARGE_SPLAT:
        scalar = to.emit("constant", (), value=literal)
        return [to.emit("broadcast_in_dim", [scalar], shape=type_.shape, dimensions=())]
    whole = Literal(type_.dtype, type_.dims, bytes(literal.data) * count)
    return [to.emit("constant", (), value=whole)]


def _read_check(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read a check of StableHLO's interpreter against a constant as its call of two operands."""
    target = node.name.removesuffix("_const")
    operands = [*x, *_read_constant(to, node, ())]
    to.emit_all("custom_call", operands, target=target, results=(SILENT,), silent=True)
    return []


def _parse_constant(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``dense<...> : type``."""
    if t.text == "{":
        node.attrs.add(read_dict(t))
    if t.text not in ("dense", "dense_resource"):
        raise UnknownForm(t.error("this form of a constant is not known here", node.at))
    value = read_dense(t)
    node.attrs["value"] = value
    node.types = [value.type]


def _emit_compare(op: Op, out: str, x: Sequence[str]) -> str:
    dtype = op.operands[0].dtype
    whole = "SIGNED" if dtype.name[0] == "s" else "UNSIGNED"
    kind = "FLOAT" if dtype.is_float or dtype.is_complex else whole
    direction = op.attrs.text("direction")
    return f"{out} = stablehlo.compare {direction}, {x[0]}, {x[1]}, {kind} : {signature(op)}"


def _direction(key: str) -> StableHloField:
    return StableHloField(
        key,
        BARE,
        lambda node: {"direction": word_of(node.attrs.get(key))},
        lambda attrs: attrs.text("direction"),
    )


def _read_compare(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    direction = word_of(node.attrs.get("comparison_direction"))
    if word_of(node.attrs.get("compare_type")) == "TOTALORDER" and x[0].dtype.is_float:
        x = [total_order_key(to.emit, value) for value in x]
    return [to.emit("compare", x, direction=direction)]


def _emit_bitcast(op: Op, out: str, x: Sequence[str]) -> str:
    """Write a bitcast; that of pred is a conversion, because a byte of pred is 0 or 1."""
    operand, result = op.operands[0].type, op.results[0].type
    name = "bitcast_convert"
    if operand.dtype is not result.dtype and pred in (operand.dtype, result.dtype):
        byte = type_text(tensor(u8, operand.shape))
        first, second = ("convert", name) if operand.dtype is pred else (name, "convert")
        middle = local(out, "byte")
        return (
            f"{middle} = stablehlo.{first} {x[0]} : ({type_text(operand)}) -> {byte}\n    "
            f"{out} = stablehlo.{second} {middle} : ({byte}) -> {type_text(result)}"
        )
    return f"{out} = stablehlo.{name} {x[0]} : {signature(op)}"


def _emit_select(op: Op, out: str, x: Sequence[str]) -> str:
    types = f"{type_text(op.operands[0].type)}, {type_text(op.results[0].type)}"
    return f"{out} = stablehlo.select {', '.join(x)} : {types}"


def _read_select(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    return [to.emit("select", _spread_scalars(to, x))]


def _spread_scalars(to: StableHloReadContext, x: Sequence[Value]) -> list[Value]:
    """Broadcast the scalars among operands of one elementwise op to the shape of the others."""
    whole = max(x, key=lambda value: value.type.rank, default=None)
    return [
        value
        if whole is None or value.type.rank == whole.type.rank
        else to.emit("broadcast_in_dim", [value], shape=whole.shape, dimensions=())
        for value in x
    ]


def _format() -> StableHloField:
    """A float format: ``e8m7``, or two integers in the generic form."""
    keys = ("exponent_bits", "mantissa_bits")

    def read(node: MlirOp) -> Mapping[str, AttrValue]:
        short = re.fullmatch(r"e(\d+)m(\d+)", word_of(node.attrs.get("format")))
        bits = map(int, short.groups()) if short else [integer_of(node, key) for key in keys]
        return dict(zip(keys, bits, strict=True))

    def show(attrs: Attrs) -> str:
        return f"e{attrs.integer(keys[0])}m{attrs.integer(keys[1])}"

    return StableHloField("format", "format", read, show)


def _emit_slice(op: Op, out: str, x: Sequence[str]) -> str:
    starts, limits = op.attrs.dims("start_indices"), op.attrs.dims("limit_indices")
    strides = op.attrs.integers("strides") or (1,) * len(starts)
    ranges = [
        f"{start}:{limit}" + (f":{stride}" if stride != 1 else "")
        for start, limit, stride in zip(starts, limits, strides, strict=True)
    ]
    return f"{out} = stablehlo.slice {x[0]} {list_text(ranges)} : {signature(op)}"


def _read_slice(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    strides = list_of(node, "strides")
    attrs = {key: list_of(node, key) for key in ("start_indices", "limit_indices")}
    # The IR spells strides that are all 1 as an empty list.
    return [to.emit("slice", x, **attrs, strides=() if set(strides) <= {1} else strides)]


def _interior() -> StableHloField:
    """Padding between elements; the IR spells none as an empty list."""
    return StableHloField(
        "interior_padding",
        "interior",
        lambda node: {"interior": or_default(list_of(node, "interior_padding", ()), 0)},
        lambda attrs: list_text(attrs.integers("interior") or [0] * len(attrs.integers("low"))),
    )


def _dot_dims(attr: str, key: str, field: str) -> StableHloField:
    """Dimensions of both operands: ``key = [0] x [1]``, or ``field`` in the generic form."""
    sides = ("lhs", "rhs")

    def read(node: MlirOp) -> Mapping[str, AttrValue]:
        if "dot_dimension_numbers" in node.attrs:
            numbers = fields_of(node, "dot_dimension_numbers")
            return {f"{s}_{attr}": field_list(numbers, f"{s}_{field}_dimensions") for s in sides}
        value = node.attrs.get(key, ((), ()))
        if not isinstance(value, tuple) or len(value) != 2:
            raise GraphgenError("GG0104", f"{node.name}: '{key}' is not two lists")
        return {f"{s}_{attr}": integers_of(v) or () for s, v in zip(sides, value, strict=True)}

    def show(attrs: Attrs) -> str:
        left, right = (attrs.integers(f"{s}_{attr}") for s in sides)
        return f"{list_text(left)} x {list_text(right)}" if left or field != "batching" else ""

    return StableHloField(key, key, read, show)


def _read_dot(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read the older op: it contracts the last dimension of lhs with the first of rhs."""
    note_precision(to, node, x)
    left = (x[0].type.rank - 1,)
    dtype = result_type(node).dtype
    return [
        to.emit("dot_general", x, lhs_contracting_dims=left, rhs_contracting_dims=(0,), dtype=dtype)
    ]


def _read_square(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    return [to.emit("multiply", [x[0], x[0]])]


def _read_erfc(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """``1 - erf(x)``, which JAX's exact gelu is written with."""
    one = to.builder.full(1.0, x[0].type)
    return [to.emit("subtract", [one, to.emit("erf", [x[0]])])]


def _emit_take(op: Op, out: str, x: Sequence[str]) -> str:
    """Write the ops of its decomposition."""
    body = decompose(op, take_by_gather)
    names = dict(zip(body.args, x, strict=True))
    lines: list[str] = []
    for number, inner in enumerate(body.block):
        name = out if body.returns(inner.result) else local(out, f"take{number}")
        names[inner.result] = name
        lines.append(emit_op(inner, name, [names[value] for value in inner.operands]))
    return "\n    ".join(lines)


# Elementwise ops whose operands all have the type of the result; abs of complex numbers is real.
_ELEMENTWISE = [
    name
    for name in ops_with(Trait.ELEMENTWISE)
    if not (OPS[name].attrs or OPS[name].composite)
    and name not in ("clamp", "complex", "erf", "imag", "is_finite", "real", "select")
]
# Ops that are parsed, and not modelled.
_UNMODELLED = (
    "get_tuple_element", "return", "tuple", "uniform_dequantize", "uniform_quantize",
)  # fmt: skip

# fmt: off
ROWS: Final[Sequence[StableHloRow]] = (
    *[StableHloRow(op, f"stablehlo.{op}", form="result") for op in _ELEMENTWISE],
    # StableHLO does not have it; CHLO, which XLA reads as well, does.
    StableHloRow("erf", "chlo.erf", form="generic"),
    StableHloRow("is_finite", "stablehlo.is_finite"),
    StableHloRow("clamp", "stablehlo.clamp"),
    *[StableHloRow(op, f"stablehlo.{op}") for op in ("complex", "imag", "real")],
    StableHloRow("select", "stablehlo.select", emit=_emit_select, read=_read_select),
    StableHloRow("compare", "stablehlo.compare",
        (_direction("comparison_direction"), hint("compare_type")), emit=_emit_compare,
        read=_read_compare),
    StableHloRow("convert", "stablehlo.convert", inferred=("dtype",)),
    StableHloRow("bitcast_convert", "stablehlo.bitcast_convert", inferred=("dtype",),
        emit=_emit_bitcast),
    StableHloRow("reduce_precision", "stablehlo.reduce_precision", (_format(),), form="result"),
    StableHloRow("constant", "stablehlo.constant", emit=_emit_constant, read=_read_constant,
        parse=_parse_constant),
    StableHloRow("", "arith.constant", read=_read_constant, parse=_parse_constant),
    StableHloRow("", "check.expect_eq_const", read=_read_check),
    StableHloRow("", "check.expect_almost_eq_const", read=_read_check),
    StableHloRow("iota", "stablehlo.iota", (integer("dimension", "iota_dimension", "dim"),),
        form="result", inferred=("dtype", "shape")),
    StableHloRow("reshape", "stablehlo.reshape", inferred=("shape",)),
    StableHloRow("broadcast_in_dim", "stablehlo.broadcast_in_dim",
        (integers("dimensions", "broadcast_dimensions", "dims"),), inferred=("shape",)),
    StableHloRow("transpose", "stablehlo.transpose", (integers("permutation", short="dims"),)),
    StableHloRow("reverse", "stablehlo.reverse", (integers("dimensions", short="dims"),),
        form="result"),
    StableHloRow("slice", "stablehlo.slice", emit=_emit_slice, read=_read_slice),
    StableHloRow("concatenate", "stablehlo.concatenate", (integer("dimension", short="dim"),)),
    StableHloRow("pad", "stablehlo.pad",
        (integers("low", "edge_padding_low", "low"),
         integers("high", "edge_padding_high", "high"), _interior())),
    StableHloRow("dot_general", "stablehlo.dot_general",
        (_dot_dims("batch_dims", "batching_dims", "batching"),
         _dot_dims("contracting_dims", "contracting_dims", "contracting"),
         hint("precision_config", "precision"), hint("algorithm", "algorithm")),
        inferred=("dtype",), mixed=True, check=note_precision),
    REDUCE_ROW,
    CONVOLUTION_ROW,
    *REDUCTION_ROWS,
    *INDEXING_ROWS,
    *COLLECTIVE_ROWS,
    *NUMERICAL_ROWS,
    *BATCH_NORM_ROWS,
    *CONTRACTION_ROWS,
    *DYNAMIC_ROWS,
    *SCALAR_FUNCTION_ROWS,
    *CONTROL_ROWS,
    *EXTERNAL_ROWS,
    StableHloRow("take", "", emit=_emit_take),
    StableHloRow("", "stablehlo.dot", form="generic", read=_read_dot),
    StableHloRow("", "chlo.square", form="generic", read=_read_square),
    StableHloRow("", "chlo.erfc", form="generic", read=_read_erfc),
    *OPAQUE_ROWS,
    StableHloRow("", "stablehlo.broadcast", (hint("broadcast_sizes", "sizes"),)),
    *[StableHloRow("", f"stablehlo.{name}") for name in _UNMODELLED],
)
# fmt: on
BY_OP: Final = by_op(ROWS)
BY_NAME: Final = by_name(ROWS)


def emit_op(op: Op, out: str, x: Sequence[str]) -> str:
    """Write an op that has a row.

    Args:
        op: the op.
        out: the names of its results, separated by commas.
        x: the names of its operands.
    """
    return emit_row(BY_OP[op.name], op, out, x)


def read_op(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value] | None:
    """Read one op into ``to``: the values of its results, or ``None`` if it is not modelled.

    An op of StableHLO or CHLO without a row of its name reads as the IR's op of its name, if that
    has no attributes.

    Raises:
        UnmodelledForm: the IR's op does not have this form.
        GraphgenError: GG0104 for its attributes, and those of the builder.
    """
    found = BY_NAME.get(node.name)
    if found is None:
        dialect, _, op = node.name.partition(".")
        if dialect == "sdy":
            return read_shardy_op(to, node, x)
        found = BY_OP.get(op) if dialect in ("stablehlo", "chlo") else None
        if found is None or OPS[op].attrs:
            return None
    return read_row(found, to, node, x)


def parse_assembly(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse the rest of an op in its assembly form, after its name.

    Raises:
        GraphgenError: GG0201.
        UnknownForm: the op does not have a row, or only one for its generic form.
    """
    # Dialects share the form of "return".
    known = "stablehlo.return" if node.name.endswith(".return") else node.name
    found = BY_NAME.get(known)
    if found is not None and found.parse is not None:
        found.parse(t, node, region)
    elif found is not None and found.form != "generic":
        parse_common_form(t, node, found)
    else:
        what = f"the short form of {node.name} is not known"
        help = "with jaxlib installed it can be read; or print the generic form"
        raise UnknownForm(t.error(what, node.at, help))
