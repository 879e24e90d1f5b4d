"""Rows of custom calls, and of Shardy's ops, which are custom calls of the names XLA gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Op, TensorType, Value, attrs_of
from graphgen.lowering.hlo.annotations import (
    FRONTEND,
    frontend_map,
    frontend_text,
    of_part,
    shape_annotation,
    shape_of_value,
)
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField as F
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.mlir.mlir_attributes import bracketed, read_dict, read_operands, symbol
from graphgen.lowering.mlir.mlir_parser import ReadRegion
from graphgen.lowering.mlir.mlir_types import read_tensor_type, string, string_of, type_text
from graphgen.lowering.mlir.syntax_tree import (
    DialectAttr,
    MlirAttr,
    MlirAttrs,
    MlirOp,
    SymbolRef,
    integers_of,
)
from graphgen.lowering.mlir.tokens import MlirTokens, unquoted_bytes
from graphgen.lowering.stablehlo import manual_computation as manual
from graphgen.lowering.stablehlo.assembly import parse_types
from graphgen.lowering.stablehlo.attribute_notes import MLIR, dictionary_text
from graphgen.lowering.stablehlo.known_numbers import numbers_of
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    UnmodelledForm,
    integer_of,
    list_text,
    signature,
    types_text,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.shardy import SHARDING, hlo_sharding
from graphgen.ops.external import SILENT

# Programming interfaces of a call's target, by their numbers in both formats.
ORIGINAL, TYPED = 1, 4
_ALIAS_OUTPUT, _ALIAS_OPERAND, _ALIAS_INSIDE = 1, 2, 3
_PLAIN = frozenset(
    (
        *(F.FEATURE_GROUP_COUNT, F.PRECISION, F.CONSTRAIN_LAYOUT, F.OPERAND_SHAPES_WITH_LAYOUT),
        *(F.BATCH_GROUP_COUNT, F.CUSTOM_CALL_HAS_SIDE_EFFECT, F.OUTPUT_OPERAND_ALIASING),
        *(F.CUSTOM_CALL_API_VERSION, F.BACKEND_CONFIG),
    )
)


def read_fields(node: MlirOp, operands: Sequence[Value], api: int) -> str:
    """The fields of a call in hexadecimal, as XLA writes them.

    Args:
        node: the call.
        operands: its operands.
        api: the number of its programming interface.

    Raises:
        UnmodelledForm: its layouts or aliases are of another form.
    """
    config = wire.delimited(1, bytes(len(operands))) if operands else b""
    out = wire.integer(F.FEATURE_GROUP_COUNT, 1) + wire.delimited(F.PRECISION, config)
    layouts = node.attrs.get("operand_layouts")
    if layouts is not None:
        orders = _orders(layouts, len(operands))
        types = [value.type for value in operands]
        shapes = [_laid_out(type_, order) for type_, order in zip(types, orders, strict=True)]
        out += wire.integer(F.CONSTRAIN_LAYOUT, 1)
        for shape in shapes:
            out += wire.delimited(F.OPERAND_SHAPES_WITH_LAYOUT, write_shape(shape))
    out += wire.integer(F.BATCH_GROUP_COUNT, 1)
    out += wire.integer(
        F.CUSTOM_CALL_HAS_SIDE_EFFECT, int(node.attrs.get("has_side_effect") is True)
    )
    aliases = node.attrs.get("output_operand_aliases", ())
    for item in aliases if isinstance(aliases, tuple) else ():
        out += wire.delimited(F.OUTPUT_OPERAND_ALIASING, _alias(item))
    return (out + _with_zero(F.CUSTOM_CALL_API_VERSION, api)).hex()


def _with_zero(number: int, value: int) -> bytes:
    """A field that is written out also where it is 0, which is not its default in StableHLO."""
    return wire.varint(number << 3) + wire.varint(value)


def _alias(item: MlirAttr) -> bytes:
    fields = item.fields if isinstance(item, DialectAttr) else {}
    operand = fields.get("operand_index", 0)
    if not isinstance(operand, int):
        raise UnmodelledForm("this form of an alias")
    return (
        wire.integers(_ALIAS_OUTPUT, integers_of(fields.get("output_tuple_indices", ())) or ())
        + wire.integer(_ALIAS_OPERAND, operand)
        + wire.integers(_ALIAS_INSIDE, integers_of(fields.get("operand_tuple_indices", ())) or ())
    )


def result_shapes(node: MlirOp, types: Sequence[TensorType]) -> list[HloShape]:
    """The shapes of a call's results with the layouts that it states.

    Raises:
        UnmodelledForm: they are of another form.
    """
    layouts = node.attrs.get("result_layouts")
    if layouts is None:
        return [_laid_out(type_, None) for type_ in types]
    orders = _orders(layouts, len(types))
    return [_laid_out(type_, order) for type_, order in zip(types, orders, strict=True)]


def _orders(value: MlirAttr, count: int) -> list[tuple[int, ...]]:
    items = value if isinstance(value, tuple) else ()
    orders = [integers_of(item) for item in items]
    found = [order for order in orders if order is not None]
    if len(found) != count:
        raise UnmodelledForm("layouts of another number of values")
    return found


def _laid_out(type_: TensorType, order: tuple[int, ...] | None) -> HloShape:
    rank = type_.rank
    order = tuple(reversed(range(rank))) if order is None else order
    if sorted(order) != list(range(rank)):
        raise UnmodelledForm("a layout of another rank")
    return HloShape(type_.dtype.name, type_.dims, (), order)


def field_texts(op: Op) -> list[tuple[str, str]]:
    """The attributes that the fields of a call are written as.

    Raises:
        GraphgenError: GG0401 for a field that StableHLO has no word for, by its number.
    """
    fields = Message(bytes.fromhex(op.attrs.text("fields") + op.attrs.text("more")))
    for number in fields.fields:
        if number not in _PLAIN or not _is_sayable(fields, number):
            what = f"custom_call {op.attrs.text('target')}: StableHLO has no word for HLO's field"
            raise GraphgenError(
                "GG0401", f"{what} {number}", where=repr(op.loc), help="write HLO instead"
            )
    found: list[tuple[str, str]] = []
    api = fields.integer(F.CUSTOM_CALL_API_VERSION)
    unspecified = api == 0 and fields.has(F.CUSTOM_CALL_API_VERSION)
    if unspecified or api not in (0, ORIGINAL):
        found.append(("api_version", f"{api} : i32"))
    if fields.boolean(F.CUSTOM_CALL_HAS_SIDE_EFFECT):
        found.append(("has_side_effect", "true"))
    if fields.boolean(F.CONSTRAIN_LAYOUT):
        shapes = fields.spans(F.OPERAND_SHAPES_WITH_LAYOUT)
        shown = [read_shape(bytes(fields.source[slice(*span)])) for span in shapes]
        found.append(("operand_layouts", _layouts(shown)))
        results = () if op.attrs["silent"] is True else op.results
        found.append(("result_layouts", _layouts([shape_of_value(v) for v in results])))
    if fields.has(F.BACKEND_CONFIG):
        found.append(("backend_config", string_of(fields.data(F.BACKEND_CONFIG))))
    aliases = [_alias_text(item) for item in fields.messages(F.OUTPUT_OPERAND_ALIASING)]
    if aliases:
        found.append(("output_operand_aliases", list_text(aliases)))
    return found


def _is_sayable(fields: Message, number: int) -> bool:
    if number in (F.FEATURE_GROUP_COUNT, F.BATCH_GROUP_COUNT):
        return fields.integer(number) == 1
    if number == F.PRECISION:
        config = fields.message(number)
        return config is None or not any(any(config.integers(inner)) for inner in config.fields)
    return True


def _layouts(shapes: Sequence[HloShape]) -> str:
    return list_text([_layout(shape) for shape in shapes])


def _layout(shape: HloShape) -> str:
    order = shape.layout or tuple(reversed(range(len(shape.dims))))
    items = list_text(order) if order else ""
    return f"dense<{items}> : tensor<{len(order)}xindex>"


def _alias_text(item: Message) -> str:
    output, inside = (list_text(item.integers(key)) for key in (_ALIAS_OUTPUT, _ALIAS_INSIDE))
    operand = item.integer(_ALIAS_OPERAND)
    return (
        f"#stablehlo.output_operand_alias<output_tuple_indices = {output}, "
        f"operand_index = {operand}, operand_tuple_indices = {inside}>"
    )


# Target of a call that states the sharding of its operand.
CONSTRAINT: Final = "Sharding"
_DIALECT = "sdy."
_HEAD = "#sdy.sharding"


def emit_custom_call(op: Op, out: str, x: Sequence[str]) -> str:
    """Write a call: one that XLA makes of an op of Shardy as that op."""
    target = op.attrs.text("target")
    if target.startswith(_DIALECT):
        return f'{out} = "{target}"({", ".join(x)}) : {signature(op)}'
    found = manual.parts_of(op)
    if found is not None:
        return manual.emit_part(found, op, out, x)
    entries = frontend_map(op.annotations)
    if target == CONSTRAINT and SHARDING in entries and len(op.results) == 1:
        sharding = entries[SHARDING].removeprefix(f"{_HEAD}_per_value<[").removesuffix("]>")
        type_ = type_text(op.results[0].type)
        return f"{out} = sdy.sharding_constraint {x[0]} {sharding} : {type_}"
    silent = op.attrs["silent"] is True
    types = f"({types_text(op.operands)}) -> ()" if silent else signature(op)
    left = "" if silent else f"{out} = "
    pairs = field_texts(op)
    config = op.attrs.text("config")
    if config:
        typed = any(key == "api_version" and text.startswith(f"{TYPED} ") for key, text in pairs)
        dictionary = typed and config.startswith("{")
        pairs.append(("backend_config", config if dictionary else string(config)))
    attrs = dictionary_text(sorted(pairs))
    shown = f" {attrs}" if attrs else ""
    return f"{left}stablehlo.custom_call @{string(target)}({', '.join(x)}){shown} : {types}"


def constraint_is_op(op: Op) -> bool:
    """True for a call that is written as ``sdy.sharding_constraint``, its sharding included."""
    named = op.name == "custom_call" and op.attrs.text("target") == CONSTRAINT
    return named and SHARDING in frontend_map(op.annotations)


def _read_custom_call(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]
) -> list[Value] | None:
    """Read a call; ``None`` for one that calls functions, or has other results than arrays."""
    target = node.attrs.get("call_target_name")
    name = target.name if isinstance(target, SymbolRef) else target
    arrays = all(text.startswith("tensor<") for text in node.types)
    if not isinstance(name, str) or not arrays or node.attrs.get("called_computations"):
        return None
    if name == _ASSERTION and operands and _holds(node, operands):
        return []
    config, typed = _config(node.attrs)
    other = _bytes_of(node.attrs) if "\ufffd" in config else b""
    api = integer_of(node, "api_version") if "api_version" in node.attrs else ORIGINAL
    more = read_fields(node, operands, TYPED if typed else api)
    if other:
        config, more = "", wire.delimited(F.BACKEND_CONFIG, other).hex() + more
    types = [read_tensor_type(text) for text in node.types]
    shapes = result_shapes(node, types)
    given: dict[str, AttrValue] = {"target": name, "config": config, "more": more}
    if not types:
        to.emit_all("custom_call", operands, **given, results=(SILENT,), silent=True)
        return []
    made = to.emit_all("custom_call", operands, **given, results=tuple(types))
    for index, shape in enumerate(shapes):
        noted = shape_annotation(shape)
        to.note(noted if len(shapes) == 1 else of_part(noted, f"element{index}"))
    return list(made)


def _config(attrs: MlirAttrs) -> tuple[str, bool]:
    """The configuration of a call as text, and whether it is a dictionary of typed attributes."""
    typed, found = attrs.get("mhlo.backend_config"), attrs.get("backend_config", "")
    if isinstance(typed, MlirAttrs):
        return attrs.text("mhlo.backend_config"), True
    if isinstance(found, MlirAttrs):
        return attrs.text("backend_config"), True
    return (found, False) if isinstance(found, str) else (attrs.text("backend_config"), False)


# Target of a call by which JAX checks the sizes of arguments.
_ASSERTION: Final = "shape_assertion"


def _holds(node: MlirOp, operands: Sequence[Value]) -> bool:
    """An assertion about sizes holds; false where it depends on an argument.

    Raises:
        GraphgenError: GG0105 with the message of one that does not hold.
    """
    try:
        numbers = [numbers_of(value) for value in operands]
    except UnmodelledForm:
        return False
    if numbers[0] == (1,):
        return True
    message = str(node.attrs.get("error_message", "an assertion about sizes does not hold"))
    for place, values in enumerate(numbers[1:]):
        message = message.replace(f"{{{place}}}", ",".join(map(str, values)))
    raise GraphgenError("GG0105", message)


def _bytes_of(attrs: MlirAttrs) -> bytes:
    """The configuration of a call as bytes where it is not UTF-8; else empty."""
    data = unquoted_bytes(attrs.text("backend_config"))
    try:
        data.decode()
    except UnicodeDecodeError:
        return data
    return b""


def parse_custom_call(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``@target(%a, %b) {attributes} : (types) -> types``."""
    node.attrs["call_target_name"] = SymbolRef(symbol(t, "a target"))
    node.operands = read_operands(t)
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    node.types = parse_types(t, node)


def _read_constraint(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]
) -> list[Value]:
    node.attrs.get("sharding")
    one = node.attrs.text("sharding").removeprefix(_HEAD)
    text = f"{_HEAD}_per_value<[{one}]>"
    made = to.emit_all(
        "custom_call", operands, target=CONSTRAINT,
        more=read_fields(node, operands, ORIGINAL),
        results=tuple([value.type for value in operands]),
    )  # fmt: skip
    sharding = hlo_sharding(one, to.source.meshes)
    noted = {"hlo.sharding": sharding} if sharding else {}
    to.note({**noted, FRONTEND: frontend_text({SHARDING: text})})
    return list(made)


def _parse_constraint(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``%a <@mesh, [{"x"}]> {attributes} : type``."""
    node.operands = [t.need("value", "an operand")]
    start = t.at
    bracketed(t)
    node.attrs.source = t.source
    node.attrs.place("sharding", True, start, t.passed)
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    node.types = parse_types(t, node)


def read_shardy_op(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]
) -> list[Value] | None:
    """Read any op of Shardy as a call of its name, with its attributes as annotations."""
    if node.regions or not node.types:
        return None
    types = tuple([read_tensor_type(text) for text in node.types])
    noted = {f"{MLIR}{key}": text for key, text in node.attrs.unread().items()}
    for key in node.attrs:
        node.attrs.get(key)
    made = to.emit_all("custom_call", operands, target=node.name, results=types)
    to.note(noted)
    return list(made)


def _read_manual(to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
    """Read as XLA writes it into HLO: parts of the operands, a call, the whole of its results."""
    if not operands or not node.types or len(node.regions) != 1:
        raise UnmodelledForm("a manual computation without operands or results")
    region = node.regions[0]
    texts = {key: manual.attribute_text(node, key) for key in manual.KEYS}
    inside = tuple([read_tensor_type(argument.type) for argument in region.args])
    if len(inside) != len(operands):
        raise UnmodelledForm("a manual computation of other operands")
    function = to.function(manual.BODY)
    values = {
        argument.name: function.block.add_arg(type_, f"arg{index}")
        for index, (argument, type_) in enumerate(zip(region.args, inside, strict=True))
    }
    to.fill(function, region, values, [])
    local = to.emit_all(
        "custom_call", operands, target=manual.TO_LOCAL, results=inside,
        more=manual.fields(operands),
    )  # fmt: skip
    results = tuple([value.type for _, value in function.outputs])
    called = to.emit_all("call", list(local), to_apply=function.name, results=results)
    types = tuple([read_tensor_type(text) for text in node.types])
    made = to.emit_all(
        "custom_call", list(called), target=manual.TO_GLOBAL, results=types,
        more=manual.fields(called),
    )  # fmt: skip
    for value, entries in ((local[0], manual.IN), (called[0], {}), (made[0], manual.OUT)):
        found = {name: texts[key] for key, name in entries.items()}
        entry = found or {"inlineable": "false"}
        if value.op is not None:
            value.op.annotations = attrs_of({FRONTEND: frontend_text(entry)})
    return list(made)


EXTERNAL_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow("custom_call", "", emit=emit_custom_call),
    StableHloRow("", "stablehlo.custom_call", read=_read_custom_call, parse=parse_custom_call),
    StableHloRow("", "sdy.sharding_constraint", read=_read_constraint, parse=_parse_constraint),
    StableHloRow("", "sdy.manual_computation", read=_read_manual, parse=manual.parse),
    StableHloRow("", "sdy.mesh", parse=manual.parse_mesh_op),
)
