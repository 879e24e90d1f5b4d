"""Encodes HLO instructions; opcodes, shapes and metadata are encoded once and shared."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from graphgen.ir import Loc, TensorType
from graphgen.ir.loc import UNKNOWN
from graphgen.lowering.abi import operation_name
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import (
    ComputationField,
    InstructionField,
    MapField,
    MetadataField,
    ProgramShapeField,
)
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of, tuple_of, write_shape
from graphgen.lowering.hlo_proto.wire import Message

Chunk = bytes | memoryview

# Frontend attributes of parameters and of the root, and the suffix of a parameter that is aliased.
INPUT_NAMES, OUTPUT_NAMES = "neff_input_names", "neff_output_names"
ALIASED = ".must_alias_input"


_heads: dict[tuple[str, HloShape], bytes] = {}


def head_of(code: str, shape: HloShape) -> bytes:
    """Opcode and shape, encoded once per pair."""
    found = _heads.get((code, shape))
    if found is None:
        found = wire.text(InstructionField.OPCODE, code)
        found += wire.delimited(InstructionField.SHAPE, write_shape(shape))
        _heads[code, shape] = found
    return found


_located: dict[tuple[Loc, str], bytes] = {}


def metadata_of(where: Loc, op_type: str, name: str = "") -> bytes:
    """OpMetadata of a location, else of a name; encoded."""
    if name:
        inner = wire.text(MetadataField.OP_TYPE, op_type) + wire.text(MetadataField.OP_NAME, name)
        return wire.delimited(InstructionField.METADATA, inner)
    found = _located.get((where, op_type))
    if found is None:
        inner = wire.text(MetadataField.OP_TYPE, op_type)
        if where is not UNKNOWN:
            inner += wire.text(MetadataField.OP_NAME, operation_name(where))
            inner += wire.text(MetadataField.SOURCE_FILE, where.file)
            inner += wire.integer(MetadataField.SOURCE_LINE, where.line)
        found = _located[where, op_type] = wire.delimited(InstructionField.METADATA, inner)
    return found


def instruction(
    name: str,
    code: str,
    shape: HloShape,
    number: int,
    fields: Sequence[Chunk] = (),
    operands: Sequence[int] = (),
    called: Sequence[int] = (),
    more: bytes = b"",
    metadata: bytes | None = None,
) -> list[Chunk]:
    """Encode an instruction as a field of its computation, in pieces.

    Args:
        name: unique in the module.
        code: its opcode.
        shape: of its result.
        number: its id.
        fields: its own fields before the ids.
        operands: their ids.
        called: the ids of the computations it calls.
        more: its own fields after the ids.
        metadata: encoded; opcode and name by default.
    """
    before = wire.text(InstructionField.NAME, name) + head_of(code, shape)
    before += metadata_of(UNKNOWN, code, name) if metadata is None else metadata
    after = wire.integer(InstructionField.ID, number)
    after += wire.integers(InstructionField.OPERAND_IDS, operands)
    after += wire.integers(InstructionField.CALLED_IDS, called) + more
    size = len(before) + len(after) + sum(map(len, fields))
    return [wire.head(ComputationField.INSTRUCTIONS, size) + before, *fields, after]


# Messages that XLA writes also where they are empty, and say nothing.
_OFTEN_EMPTY = frozenset(
    (
        *(InstructionField.FRONTEND_ATTRIBUTES, InstructionField.STATISTICS),
        InstructionField.COLLECTIVE_DEVICE_LIST,
    )
)


def stated_fields(i: Message, without: Container[int] = ()) -> list[tuple[int, bytes]]:
    """The fields of an instruction by number, those ``without`` and empty ones left out."""
    kept = [
        (number, data)
        for number, data in i.pieces(without)
        if number not in _OFTEN_EMPTY or i.data(number)
    ]
    kept.sort(key=lambda pair: pair[0])
    return kept


def write_frontend_attributes(
    items: Mapping[str, str], number: int = InstructionField.FRONTEND_ATTRIBUTES
) -> bytes:
    """Encode FrontendAttributes, strings by name, as field ``number`` of a message."""
    entries = [
        wire.delimited(
            MapField.ENTRIES, wire.text(MapField.KEY, key) + wire.text(MapField.VALUE, value)
        )
        for key, value in items.items()
    ]
    return wire.delimited(number, b"".join(entries))


def program_shape(
    parameters: Iterable[TensorType], results: list[TensorType], names: Iterable[str]
) -> bytes:
    """The ProgramShapeProto of a computation of arrays."""
    return shapes_of_computation(map(shape_of, parameters), result_shape(results), names)


def shapes_of_computation(
    parameters: Iterable[HloShape],
    result: HloShape | None,
    names: Iterable[str],
    *,
    layout: bool = False,
) -> bytes:
    """A ProgramShapeProto, whose shapes have layouts if asked to; ``None`` for no result."""
    out = [
        wire.delimited(ProgramShapeField.PARAMETERS, write_shape(shape, layout=layout))
        for shape in parameters
    ]
    if result is not None:
        out.append(wire.delimited(ProgramShapeField.RESULT, write_shape(result, layout=layout)))
    out += [wire.delimited(ProgramShapeField.PARAMETER_NAMES, name.encode()) for name in names]
    return b"".join(out)


def result_shape(types: list[TensorType]) -> HloShape:
    """The shape of a computation's result: the only one, or the tuple of all."""
    return shape_of(types[0]) if len(types) == 1 else tuple_of(types)
