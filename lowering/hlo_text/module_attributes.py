"""Attributes of a module in HLO text: one row per attribute, for its text and its protobuf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ConfigField, ModuleField, ProgramShapeField
from graphgen.lowering.hlo_proto.shape import read_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text import opaque_values
from graphgen.lowering.hlo_text.attribute_values import BOOLEAN, INTEGER, ValueKind
from graphgen.lowering.hlo_text.hlo_assembler import program_shape
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape, take_shape
from graphgen.lowering.hlo_text.hlo_sharding import parse_sharding, read_sharding, write_sharding
from graphgen.lowering.hlo_text.text_values import inside, split_items

T = TypeVar("T")
# Of the order of instructions, which is the schedule.
SCHEDULED = "is_scheduled"


@dataclass(frozen=True, slots=True)
class ModuleAttribute:
    """One attribute.

    Attributes:
        name: as written in the text.
        field: of the module.
        parse: text of the value -> the field.
        show: module -> text of the value; empty where it is not printed.
    """

    name: str
    field: int
    parse: Callable[[str], bytes]
    show: Callable[[Message], str]


def _row(name: str, field: int, kind: ValueKind[T], inner: int = 0) -> ModuleAttribute:
    """A row of values of one kind, in a field or in one inside its message."""

    def parse(text: str) -> bytes:
        data = kind.encode(inner or field, kind.parse(text))
        return wire.delimited(field, data) if inner else data

    def show(module: Message) -> str:
        holder = module.message(field) if inner else module
        if holder is None or not holder.has(inner or field):
            return ""
        return kind.show(kind.decode(holder, inner or field))

    return ModuleAttribute(name, field, parse, show)


def _parse_layout(text: str) -> bytes:
    """``{(f32[2]{0}, s32[])->f32[2]{0}}``."""
    body = inside(text)
    end = take_shape(body)
    members = parse_shape(body[:end]).members
    result = parse_shape(body[end:].strip().removeprefix("->").strip())
    names = [f"p{number}" for number in range(len(members))]
    return wire.delimited(ModuleField.PROGRAM_SHAPE, program_shape(members, result, names))


def _show_layout(module: Message) -> str:
    shape = module.message(ModuleField.PROGRAM_SHAPE)
    if shape is None or not shape.has(ProgramShapeField.RESULT):
        return ""
    given = [read_shape(item).text for item in shape.datas(ProgramShapeField.PARAMETERS)]
    result = read_shape(shape.data(ProgramShapeField.RESULT)).text
    return f"{{({', '.join(given)})->{result}}}"


def _parse_shardings(text: str) -> bytes:
    items = [write_sharding(parse_sharding(item)) for item in split_items(inside(text))]
    return b"".join([wire.delimited(ModuleField.PARAMETER_SHARDINGS, item) for item in items])


def _show_shardings(module: Message) -> str:
    items = module.messages(ModuleField.PARAMETER_SHARDINGS)
    shown = [read_sharding(item).full_text for item in items]
    return "{" + ",".join(shown) + "}" if module.has(ModuleField.PARAMETER_SHARDINGS) else ""


# In the order they are printed.
MODULE_ATTRIBUTES: tuple[ModuleAttribute, ...] = (
    _row("input_output_alias", ModuleField.ALIAS, opaque_values.MODULE_ALIASES),
    _row("buffer_donor", ModuleField.DONORS, opaque_values.BUFFER_DONORS),
    ModuleAttribute(
        "entry_computation_layout", ModuleField.PROGRAM_SHAPE, _parse_layout, _show_layout
    ),
    _row("frontend_attributes", ModuleField.FRONTEND_ATTRIBUTES, opaque_values.MAP),
    _row("replica_count", ModuleField.CONFIG, INTEGER, ConfigField.REPLICA_COUNT),
    _row("num_partitions", ModuleField.CONFIG, INTEGER, ConfigField.NUM_PARTITIONS),
    _row("is_dynamic", ModuleField.IS_DYNAMIC, BOOLEAN),
    _row("use_auto_spmd_partitioning", ModuleField.AUTO_SPMD, BOOLEAN),
    _row("spmd_output_sharding", ModuleField.OUTPUT_SHARDING, opaque_values.SHARDING),
    ModuleAttribute(
        "spmd_parameters_shardings",
        ModuleField.PARAMETER_SHARDINGS,
        _parse_shardings,
        _show_shardings,
    ),
)
# XLA's parser refuses these, and its own text leaves them away. They are read, as graphgen wrote
# them once.
NOT_IN_TEXT = ("spmd_output_sharding", "spmd_parameters_shardings")
_NAMED = {row.name: row for row in MODULE_ATTRIBUTES}


def module_attribute(name: str) -> ModuleAttribute | None:
    """The row of an attribute, ``None`` if the protobuf has no field for it."""
    return _NAMED.get(name)
