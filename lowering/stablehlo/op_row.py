"""Rows of the StableHLO dialect: one row per op, for its writer, its reader and its parser.

A row lists the attributes of an op with their names in the generic form, ``"op"(%a) <{key =
value}>``, and in the assembly form, ``op %a, short = value``. Readers see the names of the generic
form only: the parser of the assembly form translates the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, AttrValue, DType, Op, TensorType, Value
from graphgen.ir.dtype import common_type
from graphgen.lowering.codec import OpCodec
from graphgen.lowering.mlir.mlir_parser import ReadAssembly
from graphgen.lowering.mlir.mlir_types import element_text, read_tensor_type, type_text
from graphgen.lowering.mlir.syntax_tree import (
    DenseAttr,
    DialectAttr,
    MlirAttr,
    MlirOp,
    MlirRegion,
    integers_of,
)
from graphgen.lowering.stablehlo.bounded_sizes import value_type_text
from graphgen.lowering.stablehlo.dot_precision import precision_notes
from graphgen.lowering.stablehlo.promoted_operands import promoted
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.ops import OPS
from graphgen.ops.window import or_default

# The name of a field that is a word without a name in the assembly form.
BARE: Final = "<word>"


class UnmodelledForm(Exception):  # noqa: N818 (an outcome, not a mistake)
    """A form of an op that the IR's op does not have; the message names the form."""


# (op, result names, operand names) -> the op's text without location, perhaps of several lines.
EmitText = Callable[[Op, str, Sequence[str]], str]
# -> the values of the op's results; ``None`` for an op that is not modelled.
ReadNode = Callable[[StableHloReadContext, MlirOp, Sequence[Value]], list[Value] | None]
CheckNode = Callable[[StableHloReadContext, MlirOp, Sequence[Value]], None]


@dataclass(frozen=True, slots=True)
class StableHloField:
    """One attribute of an op.

    Attributes:
        key: its name in the generic form.
        short: its name in the assembly form; :data:`BARE` for a word without one.
        read: from the op to attributes of the IR's op (GG0104).
        show: from attributes of the IR's op to the value's text; empty to leave it out.
    """

    key: str
    short: str
    read: Callable[[MlirOp], Mapping[str, AttrValue]]
    show: Callable[[Attrs], str]


@dataclass(frozen=True, slots=True)
class StableHloRow(OpCodec[StableHloField, EmitText, ReadNode]):
    """One op; ``op``, ``name``, ``fields``, ``emit`` and ``read`` as in every dialect.

    Attributes:
        form: ``signature``: the assembly form with ``(operand types) -> result type``; ``result``:
            with the result type alone where all operands have it; ``generic``: the generic form.
        inferred: attributes of the IR's op that are parts of the result type: ``dtype``, ``shape``.
        reduces: its region is a reducer, the attribute ``kind`` of the IR's op.
        each: it has any number of operands, and reads as one op per operand.
        mixed: its two operands may have two element types, and are converted to one.
        check: refuses forms that the IR's op does not have, before ``fields`` are read.
        parse: parses an assembly form that is not the common one.
    """

    form: str = "signature"
    inferred: tuple[str, ...] = ()
    reduces: bool = False
    each: bool = False
    mixed: bool = False
    check: CheckNode | None = None
    parse: ReadAssembly | None = None


def integer(attr: str, key: str = "", short: str = "") -> StableHloField:
    """An integer; ``attr`` is its name in the IR."""
    key = key or attr
    return StableHloField(
        key,
        short,
        lambda node: {attr: integer_of(node, key)},
        lambda attrs: f"{attrs.integer(attr)}" + ("" if short else " : i64"),
    )


def integers(attr: str, key: str = "", short: str = "") -> StableHloField:
    """A list of integers; ``attr`` is its name in the IR."""
    key = key or attr

    def show(attrs: Attrs) -> str:
        values = attrs.integers(attr)
        if short:
            return list_text(values)
        return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"

    return StableHloField(key, short, lambda node: {attr: list_of(node, key)}, show)


def groups(attr: str, empty: str = "") -> StableHloField:
    """Groups or pairs of ranks; groups of different sizes are filled up with -1.

    Args:
        attr: its name, in the IR as well.
        empty: the text of no groups.
    """

    def show(attrs: Attrs) -> str:
        rows = attrs.groups(attr)
        if empty and not rows:
            return empty
        most = max(map(len, rows), default=0)
        filled = ", ".join(list_text((*row, *[-1] * (most - len(row)))) for row in rows)
        return f"dense<[{filled}]> : tensor<{len(rows)}x{most}xi64>"

    return StableHloField(attr, "", lambda node: {attr: groups_of(node, attr)}, show)


def hint(key: str, short: str = "") -> StableHloField:
    """An attribute that is read by a row's ``check``, and not written."""
    return StableHloField(key, short or BARE, lambda node: {}, lambda attrs: "")


def emit_row(row: StableHloRow, op: Op, out: str, x: Sequence[str]) -> str:
    """Write an op by its row."""
    if row.emit is not None:
        return row.emit(op, out, x)
    parts = [
        f"{field.key if row.form == 'generic' else field.short} = {text}"
        for field in row.fields
        if (text := field.show(op.attrs))
    ]
    if row.form == "generic":
        attrs = f" <{{{', '.join(parts)}}}>" if parts else ""
        region = f" {reducer_text(op, out)}" if row.reduces else ""
        return f'{out} = "{row.name}"({", ".join(x)}){attrs}{region} : {signature(op)}'
    result = op.results[0].type
    alike = row.form == "result" and all(value.type == result for value in op.operands)
    types = type_text(result) if alike else signature(op)
    return f"{out} = {row.name} {', '.join((*x, *parts))} : {types}"


def read_row(
    row: StableHloRow, to: StableHloReadContext, node: MlirOp, x: Sequence[Value]
) -> list[Value] | None:
    """Read an op by its row; ``None`` where it is not modelled.

    Raises:
        UnmodelledForm: the IR's op does not have this form.
        GraphgenError: GG0104 for its attributes, and those of the builder.
    """
    if row.read is not None:
        return row.read(to, node, x)
    if not row.op:
        return None
    if row.mixed:
        x = _of_one_type(to, x)
    if row.check is not None:
        row.check(to, node, x)
    attrs: dict[str, AttrValue] = {}
    if row.reduces:
        attrs["kind"] = reducer_of(node, row.op)
        x = promoted(to, node, x, node.regions[0].args[:1] * len(x))
    for field in row.fields:
        attrs |= field.read(node)
    if row.inferred:
        result = result_type(node)
        parts: dict[str, AttrValue] = {"dtype": result.dtype, "shape": result.shape}
        attrs |= {key: parts[key] for key in row.inferred}
    if row.each:
        return [to.emit(row.op, [value], **attrs) for value in x]
    return [*to.emit_all(row.op, x, **attrs)]


def _of_one_type(to: StableHloReadContext, x: Sequence[Value]) -> Sequence[Value]:
    """Both operands in an element type that holds the values of both; as they are without one."""
    kind = common_type(x[0].dtype, x[1].dtype) if len(x) == 2 else None
    if kind is None:
        return x
    return [v if v.dtype is kind else to.emit("convert", [v], dtype=kind) for v in x]


def list_text(values: Sequence[object]) -> str:
    """Spell a list: ``[1, 2]``."""
    return "[" + ", ".join(map(str, values)) + "]"


def types_text(values: Sequence[Value]) -> str:
    """Spell the types of values, separated by commas."""
    return ", ".join([value_type_text(value) for value in values])


def signature(op: Op) -> str:
    """Spell ``(operand types) -> result type``, with several result types in brackets."""
    results = types_text(op.results)
    return f"({types_text(op.operands)}) -> {results if len(op.results) == 1 else f'({results})'}"


def local(out: str, what: str) -> str:
    """Name a value beside ``out`` that no value of the IR is called: those never start with $."""
    return f"%${what}.{out[1:]}"


def reducer_text(op: Op, out: str) -> str:
    """Spell the region of the reducer ``kind``: an op of its two arguments, or ``assign``."""
    body, scalar = op.attrs.text("kind"), scalar_text(op.operands[0].dtype)
    a, b, result = (local(out, what) for what in "abr")
    lines = [f"({{\n      ^bb0({a}: {scalar}, {b}: {scalar}):"]
    if body == "assign":
        result = b
    else:
        lines.append(f"        {result} = stablehlo.{body} {a}, {b} : {scalar}")
    lines.append(f"        stablehlo.return {result} : {scalar}\n    }})")
    return "\n".join(lines)


def scalar_text(dtype: DType) -> str:
    """Spell the type of a scalar: ``tensor<f32>``."""
    return f"tensor<{element_text(dtype)}>"


def reducer_of(node: MlirOp, op: str) -> str:
    """Recognize the reducer of an op, one of the ``kind`` of the IR's op.

    Raises:
        UnmodelledForm: any other.
        GraphgenError: GG0104 for another number of regions.
    """
    if len(node.regions) != 1:
        raise GraphgenError("GG0104", f"{node.name} needs one region")
    kind = reducer(node.regions[0])
    known = next(attr.type.choices for attr in OPS[op].attrs if attr.name == "kind")
    if kind not in known:
        raise UnmodelledForm(f"reducing with {kind}")
    return kind


def named_reducer(node: MlirOp, op: str) -> str:
    """Name the reducer of an op; empty where it is more than one op, or none that has a name."""
    try:
        return reducer_of(node, op)
    except UnmodelledForm:
        return ""


def reducer(region: MlirRegion) -> str:
    """Name the op that a region applies to its two arguments; ``assign`` returns the second.

    Raises:
        UnmodelledForm: it is not one op.
    """
    names = [argument.name for argument in region.args]
    body = _without_constraints(region.body)
    if len(names) == 2 and body and body[-1].name.endswith(".return"):
        returned = body[-1].operands
        if len(body) == 1 and returned == names[1:]:
            return "assign"
        one = len(body) == 2 and returned == body[0].results
        if one and sorted(body[0].operands) == sorted(names):
            return body[0].name.partition(".")[2]
    raise UnmodelledForm("a reduction that is not one op of its two arguments")


def _without_constraints(body: Sequence[MlirOp]) -> list[MlirOp]:
    """The ops of a region without statements of shardings, whose operands stand for them."""
    same: dict[str, str] = {}
    kept: list[MlirOp] = []
    for node in body:
        if node.name == "sdy.sharding_constraint":
            same[node.results[0]] = same.get(node.operands[0], node.operands[0])
        elif same and any(name in same for name in node.operands):
            kept.append(replace(node, operands=[same.get(name, name) for name in node.operands]))
        else:
            kept.append(node)
    return kept


def result_type(node: MlirOp) -> TensorType:
    """Parse the type of the first result."""
    return read_tensor_type(node.types[0])


def list_of(node: MlirOp, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Read a list of integers (GG0104)."""
    if key not in node.attrs and default is not None:
        return default
    found = integers_of(node.attrs.get(key))
    if found is None:
        raise GraphgenError("GG0104", f"{node.name} needs the integers '{key}'")
    return found


def integer_of(node: MlirOp, key: str) -> int:
    """Read an integer (GG0104)."""
    value = node.attrs.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise GraphgenError("GG0104", f"{node.name} needs the integer '{key}'")
    return value


def groups_of(node: MlirOp, key: str) -> tuple[tuple[int, ...], ...]:
    """Read groups or pairs of ranks (GG0104); -1 fills up a row."""
    value = node.attrs.get(key)
    flat = integers_of(value)
    if not isinstance(value, DenseAttr) or flat is None:
        raise GraphgenError("GG0104", f"{node.name} needs '{key}'")
    rows, columns = read_tensor_type(value.type).dims
    flat = flat * (rows * columns) if len(flat) == 1 else flat
    found = [flat[row * columns : (row + 1) * columns] for row in range(rows)]
    return tuple(tuple(rank for rank in group if rank >= 0) for group in found)


def fields_of(node: MlirOp, key: str) -> Mapping[str, MlirAttr]:
    """Read the fields of ``#stablehlo.name<field = value>`` (GG0104)."""
    value = node.attrs.get(key)
    if not isinstance(value, DialectAttr):
        raise GraphgenError("GG0104", f"{node.name} needs '{key}'")
    return value.fields


def field_list(fields: Mapping[str, MlirAttr], key: str) -> tuple[int, ...]:
    """Read a list among fields; an empty one may be left out."""
    return integers_of(fields.get(key, ())) or ()


def note_precision(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> None:
    """Annotate a product with its precision and its algorithm: the IR's ops do not have them."""
    to.note(precision_notes(node))


def padding_text(attrs: Attrs, rank: int) -> str:
    """Spell the padding: ``[[low, high], ...]``, one pair a dimension."""
    low, high = (attrs.integers(key) or (0,) * rank for key in ("low", "high"))
    return "[" + ", ".join([f"[{a}, {b}]" for a, b in zip(low, high, strict=True)]) + "]"


def padding_of(node: MlirOp) -> dict[str, AttrValue]:
    """Read the padding: the attributes ``low`` and ``high`` (GG0104)."""
    value = node.attrs.get("padding", ())
    if isinstance(value, tuple):
        pairs = [integers_of(item) or () for item in value]
        flat = tuple([edge for pair in pairs for edge in pair])
    else:
        flat = integers_of(value) or ()
        if len(flat) == 1:
            # A splat: `dense<1> : tensor<2x2xi64>`.
            flat = flat * (2 * _pairs_in(value))
    if len(flat) % 2:
        raise GraphgenError("GG0104", f"{node.name}: 'padding' is not pairs of integers")
    return {"low": or_default(flat[::2], 0), "high": or_default(flat[1::2], 0)}


def _pairs_in(value: MlirAttr) -> int:
    return read_tensor_type(value.type).dims[0] if isinstance(value, DenseAttr) else 0
