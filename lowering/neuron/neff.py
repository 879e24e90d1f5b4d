"""Reads NEFF files, the output of neuronx-cc: a header of 1024 bytes and a tar archive."""

from __future__ import annotations

import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from graphgen.atomic_write import open_regular
from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ComputationField, InstructionField, ModuleField
from graphgen.lowering.hlo_proto.instruction import write_frontend_attributes
from graphgen.lowering.hlo_proto.proto_module import open_hlo
from graphgen.lowering.hlo_proto.wire import Message

# Source: the Neuron runtime guide, "Work with NEFF files".
HEADER = 1024
# Of an archive of machine code; more is made to fill memory or time.
_MOST_RATIO = 256
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
        with open_regular(Path(path)) as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(HEADER)
            return _read(file, header, size, str(path))
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise GraphgenError("GG0705", f"cannot read '{path}': {reason}") from error


def _read(file: BinaryIO, header: bytes, size: int, name: str) -> Neff:
    """The header, and the members of the archive that follows it (GG0802)."""
    if size <= HEADER:
        what = f"a NEFF has a header of {HEADER} bytes, this file has {size} in all"
        raise GraphgenError("GG0802", what, where=name, help=_HELP)
    try:
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            members = tuple(_members(archive, _MOST_RATIO * size))
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
        what = f"no archive follows byte {HEADER}: {error}"
        raise GraphgenError("GG0802", what, where=name, help=_HELP) from error
    words = [word.decode() for word in re.findall(rb"[ -~]{4,}", header)]
    return Neff(tuple(words), members, size)


def _members(archive: tarfile.TarFile, most: int) -> Iterator[Member]:
    """The files of an archive, up to a number of bytes (ValueError)."""
    unpacked = 0
    for item in archive:
        unpacked += item.size
        if unpacked > most:
            raise ValueError(f"it unpacks to more than {most} bytes")
        if item.isfile():
            yield Member(item.name, item.size)


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
