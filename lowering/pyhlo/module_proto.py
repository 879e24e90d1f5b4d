"""The HLO protobuf of a PyHLO program, with the fields that its users read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from graphgen.lowering.hlo_proto.fields import (
    ELEMENT_TYPES,
    AliasField,
    ModuleField,
    ProgramShapeField,
)
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message


@dataclass(frozen=True, slots=True)
class ShapeProto:
    """One shape.

    Attributes:
        element_type: the number of XLA's PrimitiveType.
        dimensions: sizes of the dimensions of an array.
        tuple_shapes: shapes of the elements of a tuple.
        shape: the shape itself.
    """

    element_type: int
    dimensions: tuple[int, ...]
    tuple_shapes: tuple[ShapeProto, ...]
    shape: HloShape = field(compare=False, repr=False)

    def SerializeToString(self) -> bytes:  # noqa: N802 (protobuf's name of it)
        """The bytes, under protobuf's name."""
        return write_shape(self.shape)


@dataclass(frozen=True, slots=True)
class ProgramShapeProto:
    """The shapes of a program.

    Attributes:
        parameters: one shape each, in order.
        result: one array, or the tuple of all.
        parameter_names: one each.
    """

    parameters: tuple[ShapeProto, ...]
    result: ShapeProto
    parameter_names: tuple[str, ...]


def shape_proto(shape: HloShape) -> ShapeProto:
    """Make the fields of a shape."""
    members: Sequence[HloShape] = shape.members
    inner = tuple([shape_proto(member) for member in members])
    return ShapeProto(ELEMENT_TYPES[shape.element], shape.dims, inner, shape)


_METADATA = re.compile(r', metadata=\{(?:[^"}]|"[^"]*")*\}')


@dataclass(frozen=True, slots=True)
class AliasEntry:
    """An output that takes over the buffer of a parameter.

    Attributes:
        output_shape_index: the place in the result's tuple; empty where the result is one array.
        parameter_number: the parameter.
        parameter_shape_index: the place in a parameter that is a tuple; always empty.
    """

    output_shape_index: tuple[int, ...]
    parameter_number: int
    parameter_shape_index: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AliasProto:
    """The fields of HloInputOutputAliasProto.

    Attributes:
        entries: one for each state.
    """

    entries: tuple[AliasEntry, ...]


@dataclass(frozen=True, slots=True)
class ModuleProto:
    """A serialized HloModuleProto; it pickles as its bytes, whatever the depth of the program.

    Attributes:
        data: its bytes.
        name: the module's.
    """

    data: bytes
    name: str

    def __str__(self) -> str:
        """HLO text without metadata: the same for the same program, wherever its source file is."""
        return _text(self.data)

    def SerializeToString(self) -> bytes:  # noqa: N802 (protobuf's name of it)
        """The bytes, under protobuf's name."""
        return self.data

    @property
    def host_program_shape(self) -> ProgramShapeProto:
        """The shapes of the parameters and of the result."""
        return _program_shape(self.data)

    @property
    def input_output_alias(self) -> AliasProto:
        """The states: which output takes over the buffer of which parameter."""
        found = Message(self.data).message(ModuleField.ALIAS)
        entries = found.messages(AliasField.ENTRIES) if found else []
        return AliasProto(
            tuple([
                AliasEntry(
                    entry.integers(AliasField.OUTPUT_INDEX), entry.integer(AliasField.PARAMETER)
                )
                for entry in entries
            ])
        )  # fmt: skip


@lru_cache(maxsize=32)
def _program_shape(data: bytes) -> ProgramShapeProto:
    shape = Message(data).message(ModuleField.PROGRAM_SHAPE)
    assert shape is not None
    return ProgramShapeProto(
        tuple([
            shape_proto(read_shape(bytes(memoryview(data)[start:end])))
            for start, end in shape.spans(ProgramShapeField.PARAMETERS)
        ]),
        shape_proto(read_shape(shape.data(ProgramShapeField.RESULT))),
        tuple(shape.texts(ProgramShapeField.PARAMETER_NAMES)),
    )  # fmt: skip


@lru_cache(maxsize=8)
def _text(data: bytes) -> str:
    from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text

    return _METADATA.sub("", print_hlo_text(data))
