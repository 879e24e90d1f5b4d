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

# The op name that graphgen writes: scope, then the passes that made the op.
_VIA = re.compile(r"(.*) via (\S+)$", re.DOTALL)
_APART = re.compile(r"[\s#]+")


class HloLocations:
    """Decodes OpMetadata; equal bytes are decoded once.

    Args:
        module: the HloModuleProto, for the stack frame table of newer files.
    """

    def __init__(self, module: Message) -> None:
        self._frames = module.message(ModuleField.STACK_FRAMES)
        self._known: dict[bytes, Loc] = {}
        self._places: dict[int, tuple[str, int]] = {}

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
        file = metadata.text(MetadataField.SOURCE_FILE)
        line = metadata.integer(MetadataField.SOURCE_LINE)
        if not file:
            file, line = self._place(metadata.integer(MetadataField.STACK_FRAME_ID))
        scope, via = metadata.text(MetadataField.OP_NAME), ()
        if " via " in scope and (match := _VIA.match(scope)):
            scope, via = match[1], tuple(match[2].split(","))
        # A location is one line of text: no spaces in its parts.
        scope = _APART.sub("_", scope.replace("/", "."))
        file = _APART.sub("_", file)
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
