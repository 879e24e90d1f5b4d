"""Locations of instructions: HLO's OpMetadata as locations of the IR."""

from __future__ import annotations

import re

from graphgen.ir import Loc, loc
from graphgen.ir.loc import UNKNOWN
from graphgen.lowering.hlo_proto.fields import (
    InstructionField,
    MetadataField,
    ModuleField,
    StackFramesField,
)
from graphgen.lowering.hlo_proto.wire import Message

_APART = re.compile(r"[\s#]+")


def _is_word(text: str) -> bool:
    """True for a text of one word; many times as fast as a pattern with spaces of Unicode."""
    return text.split() == [text]


def _one_word(text: str) -> str:
    """The text without spaces: a location is one line of text, of parts between spaces."""
    return text if _is_word(text) and "#" not in text else _APART.sub("_", text)


class HloLocations:
    """Decodes OpMetadata; equal bytes are decoded once.

    Args:
        module: the HloModuleProto, for the stack frame table of newer files.
    """

    def __init__(self, module: Message) -> None:
        self._frames = module.message(ModuleField.STACK_FRAMES)
        self._known: dict[bytes, Loc] = {}
        self._places: dict[int, tuple[str, int]] = {}
        self._files: dict[bytes, str] = {}
        self._vias: dict[str, tuple[str, ...]] = {}

    def read(self, instruction: Message) -> Loc:
        """The location of an instruction, ``UNKNOWN`` where it has no scope and no line."""
        spans = instruction.spans(InstructionField.METADATA)
        if not spans:
            return UNKNOWN
        data = instruction.source[spans[-1][0] : spans[-1][1]]
        found = self._known.get(data)
        if found is None:
            found = self._known[data] = self._read(Message(data))
        return found

    def _read(self, metadata: Message) -> Loc:
        data = metadata.data(MetadataField.SOURCE_FILE)
        file = self._files.get(data)
        if file is None:
            file = self._files[data] = _one_word(metadata.text(MetadataField.SOURCE_FILE))
        line = metadata.integer(MetadataField.SOURCE_LINE)
        if not file:
            file, line = self._place(metadata.integer(MetadataField.STACK_FRAME_ID))
            file = _one_word(file)
        scope, via = metadata.text(MetadataField.OP_NAME), ()
        before, _, passes = scope.rpartition(" via ")
        if passes != scope and _is_word(passes):
            scope = before
            via = self._vias.get(passes) or self._vias.setdefault(passes, tuple(passes.split(",")))
        scope = _one_word(scope.replace("/", "."))
        return loc(file or "?", max(line, 0), scope, via) if file or scope else UNKNOWN

    def _place(self, frame: int) -> tuple[str, int]:
        """File and line of a stack frame; ids count from 1."""
        if frame < 1 or self._frames is None:
            return "", 0
        found = self._places.get(frame)
        if found is None:
            found = self._places[frame] = self._look_up(self._frames, frame)
        return found

    def _look_up(self, table: Message, frame: int) -> tuple[str, int]:
        frames = table.spans(StackFramesField.FRAMES)
        places = table.spans(StackFramesField.LOCATIONS)
        files = table.spans(StackFramesField.FILE_NAMES)
        if frame > len(frames):
            return "", 0
        entry = Message(table.source, *frames[frame - 1])
        at = entry.integer(StackFramesField.FRAME_LOCATION)
        if not 1 <= at <= len(places):
            return "", 0
        place = Message(table.source, *places[at - 1])
        name = place.integer(StackFramesField.LOCATION_FILE)
        if not 1 <= name <= len(files):
            return "", 0
        start, end = files[name - 1]
        file = table.source[start:end].decode("utf-8", "replace")
        return file, place.integer(StackFramesField.LOCATION_LINE)
