"""Opens an HLO protobuf: the module inside its wrappers, its computations still encoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto.fields import (
    ComputationField,
    InstructionField,
    MapField,
    ModuleField,
    WrapperField,
)
from graphgen.lowering.hlo_proto.wire import Message, Source

_OPCODE = re.compile(r"[a-z][a-z0-9\-]*")
# HloSnapshot holds an HloProto, which holds an HloModuleProto.
_WRAPPERS = 2


@dataclass(frozen=True, slots=True)
class HloComputation:
    """One computation of the file.

    Attributes:
        message: its HloComputationProto.
        id: of the computation, as in ``called_computation_ids``.
        name: of the computation.
        root_id: of the instruction whose value is the result.
    """

    message: Message
    id: int
    name: str
    root_id: int

    @property
    def size(self) -> int:
        """The number of its instructions."""
        return len(self.message.fields.get(ComputationField.INSTRUCTIONS, ()))

    def instructions(self) -> Iterator[Message]:
        """The instructions in order, decoded one at a time."""
        for span in self.message.spans(ComputationField.INSTRUCTIONS):
            yield Message(self.message.source, *span)


@dataclass(frozen=True, slots=True)
class HloModule:
    """The module of a file.

    Attributes:
        message: its HloModuleProto.
        computations: callees before callers, as the file has them.
        entry: the one that is the program.
    """

    message: Message
    computations: tuple[HloComputation, ...]
    entry: HloComputation

    @property
    def name(self) -> str:
        """The name of the module."""
        return self.message.text(ModuleField.NAME)


def read_frontend_attributes(message: Message, number: int) -> dict[str, str]:
    """Decode FrontendAttributes, field ``number`` of an instruction or a module."""
    found = message.message(number)
    entries = found.messages(MapField.ENTRIES) if found else []
    return {item.text(MapField.KEY): item.text(MapField.VALUE) for item in entries}


def is_module(message: Message) -> bool:
    """Recognize an HloModuleProto by the opcode of its first instruction."""
    try:
        for computation in message.spans(ModuleField.COMPUTATIONS)[:1]:
            found = Message(message.source, *computation)
            for instruction in found.spans(ComputationField.INSTRUCTIONS)[:1]:
                first = Message(message.source, *instruction)
                return bool(_OPCODE.fullmatch(first.text(InstructionField.OPCODE)))
    except GraphgenError:
        pass
    return False


def looks_like_proto(head: bytes) -> bool:
    """Recognize a file that may hold HLO as a protobuf by its first bytes.

    HLO protobufs have no magic number: the test is a length-delimited field 1 to 3 in front, and
    bytes that no text has.
    """
    if head[:1] not in (b"\x0a", b"\x12", b"\x1a"):
        return False
    try:
        # The last character may be cut.
        head[:-4].decode("utf-8")
    except UnicodeDecodeError:
        return True
    return any(byte < 32 and byte not in b"\n\r\t\f" for byte in head)


def open_hlo(source: Source) -> HloModule:
    """Open a protobuf: an HloModuleProto, or an HloProto or HloSnapshot around it.

    Raises:
        GraphgenError: GG0801 for other protobufs, or without an entry computation.
    """
    message = Message(source)
    for _ in range(_WRAPPERS):
        if is_module(message):
            break
        inner = message.fields.get(WrapperField.MODULE)
        if not inner or isinstance(inner[-1], int):
            break
        try:
            message = Message(source, *inner[-1])
        except GraphgenError:
            # The field is bytes of another message, not a module.
            break
    if not is_module(message):
        raise GraphgenError("GG0801", "no HLO computation is in this protobuf")
    return _module(message)


def _module(message: Message) -> HloModule:
    computations: list[HloComputation] = []
    for item in message.messages(ModuleField.COMPUTATIONS):
        number = item.integer(ComputationField.ID)
        root = item.integer(ComputationField.ROOT_ID)
        name = item.text(ComputationField.NAME)
        computations.append(HloComputation(item, number, name, root))
    by_id = {item.id: item for item in computations}
    if len(by_id) != len(computations):
        raise GraphgenError("GG0801", "two computations have the same id")
    entry = by_id.get(message.integer(ModuleField.ENTRY_ID))
    if entry is None:
        name = message.text(ModuleField.ENTRY_NAME)
        entry = next((item for item in computations if item.name == name), None)
    if entry is None:
        raise GraphgenError("GG0801", "the module has no entry computation")
    return HloModule(message, tuple(computations), entry)
