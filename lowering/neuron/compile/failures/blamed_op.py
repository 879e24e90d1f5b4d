"""Finds the instruction that a compiler's log names in the HLO file, and the user's line of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo.proto.fields import InstructionField, MetadataField
from graphgen.lowering.hlo.proto.proto_module import open_hlo
from graphgen.lowering.hlo.proto.wire import Message

_NAMED = re.compile(r"%([A-Za-z_][\w.\-]*)")
_FILE, _LINE = re.compile(r'source_file="([^"]+)"'), re.compile(r"source_line=(\d+)")
_SCOPE = re.compile(r'op_name="([^"]+)"')
_WORD = re.compile(r"[A-Za-z_][\w.\-]*")


@dataclass(frozen=True, slots=True)
class BlamedOp:
    """An instruction that a log names.

    Attributes:
        name: of the instruction; empty where only its metadata is in the log.
        opcode: HLO's; empty where it is not known.
        where: the user's line and scope, as far as they are known.
    """

    name: str
    opcode: str
    where: str


def blamed_op(text: str, hlo: Path) -> BlamedOp | None:
    """The instruction that a text names by its name or its metadata; ``None`` if there is none.

    Args:
        text: of a log.
        hlo: the file that was compiled.
    """
    file, line, scope = _FILE.search(text), _LINE.search(text), _SCOPE.search(text)
    stated = _place(file[1] if file else "", int(line[1]) if line else 0, scope[1] if scope else "")
    words = [*_NAMED.findall(text), *_WORD.findall(text)]
    found = _instruction(words, hlo)
    if found is None:
        return BlamedOp("", "", stated) if stated else None
    return BlamedOp(found.name, found.opcode, stated or found.where)


def _instruction(words: list[str], hlo: Path) -> BlamedOp | None:
    """The first of the words that names an instruction of the file.

    Words that are plain opcodes name none: every log is full of them.
    """
    try:
        module = open_hlo(hlo.read_bytes())
    except (OSError, GraphgenError):
        return None
    wanted = {word.rstrip(".") for word in words}
    names: dict[str, BlamedOp] = {}
    for computation in module.computations:
        for item in computation.instructions():
            name = item.text(InstructionField.NAME)
            if name in wanted:
                names[name] = _described(name, item)
    ordered = (names[word.rstrip(".")] for word in words if word.rstrip(".") in names)
    return next((item for item in ordered if item.name != item.opcode), None)


def _described(name: str, item: Message) -> BlamedOp:
    about = item.message(InstructionField.METADATA)
    where = ""
    if about is not None:
        where = _place(
            about.text(MetadataField.SOURCE_FILE),
            about.integer(MetadataField.SOURCE_LINE),
            about.text(MetadataField.OP_NAME),
        )
    return BlamedOp(name, item.text(InstructionField.OPCODE), where)


def _place(file: str, line: int, scope: str) -> str:
    """``file:line scope``, without the passes that the scope lists."""
    scope = scope.split(" via ", 1)[0]
    place = f"{file}:{line}" if file and line else file
    return f"{place} {scope}".strip()
