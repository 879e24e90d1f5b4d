"""Reads NEFF files, the output of neuronx-cc: a header of 1024 bytes and a tar archive."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ComputationField, InstructionField, ModuleField
from graphgen.lowering.hlo_proto.instruction import write_frontend_attributes
from graphgen.lowering.hlo_proto.proto_module import open_hlo
from graphgen.lowering.hlo_proto.wire import Message

# Source: the Neuron runtime guide, "Work with NEFF files".
HEADER = 1024
_HELP = "neuronx-cc writes NEFF files; a compiler cache holds them as model.neff"


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the archive."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Neff:
    """Contents of a NEFF file.

    Attributes:
        words: the texts in the header, such as the compiler's version and the program's name.
        members: the files of the archive, in order.
        nbytes: size of the file.
    """

    words: tuple[str, ...]
    members: tuple[Member, ...]
    nbytes: int


def read_neff(path: str | Path) -> Neff:
    """Read the header's texts and the list of files of a NEFF.

    Raises:
        GraphgenError: GG0705 it cannot be read, GG0802 it is not a NEFF.
    """
    try:
        data = read_regular(Path(path))
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise GraphgenError("GG0705", f"cannot read '{path}': {reason}") from error
    if len(data) <= HEADER:
        what = f"a NEFF has a header of {HEADER} bytes, this file has {len(data)} in all"
        raise GraphgenError("GG0802", what, where=str(path), help=_HELP)
    try:
        with tarfile.open(fileobj=io.BytesIO(data[HEADER:]), mode="r:*") as archive:
            members = tuple(Member(item.name, item.size) for item in archive if item.isfile())
    except (tarfile.TarError, EOFError, OSError) as error:
        what = f"no archive follows byte {HEADER}: {error}"
        raise GraphgenError("GG0802", what, where=str(path), help=_HELP) from error
    words = [word.decode() for word in re.findall(rb"[ -~]{4,}", data[:HEADER])]
    return Neff(tuple(words), members, len(data))


TARGET = "AwsNeuronNeff"


def wrap_neff(hlo: bytes, neff: bytes) -> bytes:
    """The HloModuleProto of a program with its NEFF in the place of its ops.

    Args:
        hlo: HloModuleProto of the program.
        neff: the compiler's output.

    Raises:
        GraphgenError: GG0801 for something else than HLO.
    """
    module = open_hlo(hlo)
    entry = module.entry
    kept: list[Message] = []
    root: Message | None = None
    for instruction in entry.instructions():
        if instruction.text(InstructionField.OPCODE) == "parameter":
            kept.append(instruction)
        if instruction.integer(InstructionField.ID) == entry.root_id:
            root = instruction
    if root is None:
        raise wire.damaged("the entry has no root", 0)
    ids = [item.integer(InstructionField.ID) for item in kept]
    call = b"".join(
        [
            wire.text(InstructionField.NAME, root.text(InstructionField.NAME)),
            wire.text(InstructionField.OPCODE, "custom-call"),
            wire.delimited(InstructionField.SHAPE, root.data(InstructionField.SHAPE)),
            wire.text(InstructionField.CUSTOM_CALL_TARGET, TARGET),
            wire.integer(InstructionField.ID, entry.root_id),
            wire.integers(InstructionField.OPERAND_IDS, ids),
            wire.delimited(InstructionField.BACKEND_CONFIG, neff),
            write_frontend_attributes({"valid_inputs": ",".join("1" for _ in ids)}),
        ]
    )
    rest = [data for _, data in entry.message.pieces([ComputationField.INSTRUCTIONS])]
    body = [item.source[item.span[0] : item.span[1]] for item in kept]
    instructions = [wire.delimited(ComputationField.INSTRUCTIONS, data) for data in [*body, call]]
    computation = wire.delimited(ModuleField.COMPUTATIONS, b"".join([*instructions, *rest]))
    others = [data for _, data in module.message.pieces([ModuleField.COMPUTATIONS])]
    return b"".join([*others, computation])
