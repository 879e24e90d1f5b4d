"""Layouts, effects and aliases of a custom call: attributes of StableHLO, and fields of HLO.

The IR keeps them as fields, encoded, with the bytes that XLA writes for the attributes.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Op, TensorType, Value
from graphgen.lowering.hlo.preserved.hlo_annotations import shape_of_value
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import InstructionField as F
from graphgen.lowering.hlo.proto.shape import HloShape, read_shape, write_shape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.stablehlo.op_row import UnmodelledForm, list_text
from graphgen.lowering.stablehlo.text.syntax_tree import (
    DialectAttr,
    MlirAttr,
    MlirOp,
    integers_of,
)

# Programming interfaces of a call's target, by their numbers in both formats.
ORIGINAL, TYPED = 1, 4
_ALIAS_OUTPUT, _ALIAS_OPERAND, _ALIAS_INSIDE = 1, 2, 3
_PLAIN = frozenset(
    (
        *(F.FEATURE_GROUP_COUNT, F.PRECISION, F.CONSTRAIN_LAYOUT, F.OPERAND_SHAPES_WITH_LAYOUT),
        *(F.BATCH_GROUP_COUNT, F.CUSTOM_CALL_HAS_SIDE_EFFECT, F.OUTPUT_OPERAND_ALIASING),
        F.CUSTOM_CALL_API_VERSION,
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
    return (out + wire.integer(F.CUSTOM_CALL_API_VERSION, api)).hex()


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
    if api not in (0, ORIGINAL):
        found.append(("api_version", f"{api} : i32"))
    if fields.boolean(F.CUSTOM_CALL_HAS_SIDE_EFFECT):
        found.append(("has_side_effect", "true"))
    if fields.boolean(F.CONSTRAIN_LAYOUT):
        shapes = fields.spans(F.OPERAND_SHAPES_WITH_LAYOUT)
        shown = [read_shape(bytes(fields.source[slice(*span)])) for span in shapes]
        found.append(("operand_layouts", _layouts(shown)))
        results = () if op.attrs["silent"] is True else op.results
        found.append(("result_layouts", _layouts([shape_of_value(v) for v in results])))
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
