"""Parser of HLO text, as printed by every version of XLA and by Neuron's tools.

Names may have a ``%`` or not, operands their shapes before them or not, computations a signature
or not; the head of the module and shapes that XLA infers may be missing, operands may be
instructions. Constants may be elided (``{...}``), which leaves a literal without elements.
"""

from __future__ import annotations

import re

from graphgen.errors import GraphgenError
from graphgen.gc_pause import paused_collector
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ModuleField
from graphgen.lowering.hlo_proto.instruction import write_frontend_attributes
from graphgen.lowering.hlo_text.hlo_assembler import ComputationAssembler, ModuleAssembler
from graphgen.lowering.hlo_text.hlo_tokens import HloTokens
from graphgen.lowering.hlo_text.instruction_parser import InstructionParser
from graphgen.lowering.hlo_text.metadata import ROWS, STRINGS, parse_frame_row
from graphgen.lowering.hlo_text.module_attributes import SCHEDULED, module_attribute
from graphgen.lowering.hlo_text.own_fields import value_reason
from graphgen.lowering.hlo_text.text_values import BadAttributeError, unquoted
from graphgen.numbers import BAD_NUMBER

_NOTHING = rb"(?:\s|//[^\n]*\n|/\*.*?\*/)*"
_HEADED = re.compile(_NOTHING + rb"HloModule[\s,]", re.DOTALL)
# A computation or an instruction without the head of a module.
_HEADLESS = re.compile(
    _NOTHING
    + rb"""(?:ENTRY\s+%?[\w.\-]*\s*[({]
    | %?[\w.\-]+\s*(?:\([^{}]*\)\s*->[^={}]*)?\{\s*(?:/\*.*?\*/\s*)*(?:ROOT\s+)?%?[\w.\-]+\s*=
    | (?:ROOT\s+)?%?[\w.\-]+\s*=\s*[a-z]\w*\[[\d,]*\](?:\{[^{}]*\})?\s+[a-z][a-z\d\-]*\(
    )""",
    re.DOTALL | re.VERBOSE,
)


def looks_like_text(head: bytes) -> bool:
    """Recognize HLO text by its first bytes."""
    return _HEADED.match(head) is not None or _HEADLESS.match(head) is not None


@paused_collector()
def parse_hlo_text(text: str, name: str = "<text>") -> bytes:
    """Parse HLO text as an HloModuleProto.

    Args:
        text: one module, or its computations, or one instruction.
        name: of the file, for error messages.

    Raises:
        GraphgenError: GG0201 with file, line and column.
    """
    parser = _HloParser(HloTokens(text, name))
    try:
        return parser.module()
    except BAD_NUMBER as error:
        raise parser.tokens.fail(str(error)) from error


class _HloParser:
    def __init__(self, tokens: HloTokens) -> None:
        self.tokens = tokens
        self.instructions = InstructionParser(tokens)
        self.made = ModuleAssembler()
        self.frames: list[bytes] = []

    def module(self) -> bytes:
        """Parse the whole text."""
        tokens = self.tokens
        name: str | None = None
        head: dict[str, tuple[str, int]] = {}
        if tokens.accept("HloModule"):
            name = tokens.take().removeprefix("%") if tokens.peek() != "," else ""
            name = name.rstrip(",")
            tokens.accept(":")
            head = self.instructions.attributes()
        while (token := tokens.peek()) in (*STRINGS, *ROWS):
            self._frames(token)
        if self._is_instruction():
            self._lone_instruction()
        while tokens.peek():
            self._computation()
        if not self.made.computations:
            raise tokens.fail("the text holds no computation")
        entry = self.made.entry or self.made.computations[-1]
        fields = self._fields(head)
        if name is None:
            name = f"module_{entry.name}"
        scheduled = head.get(SCHEDULED, ("false", 0))[0] == "true"
        return self.made.encode(name, fields, scheduled=scheduled)

    def _fields(self, head: dict[str, tuple[str, int]]) -> dict[int, bytes]:
        """The fields of the module that its attributes and the tables of frames give."""
        fields: dict[int, bytes] = {}
        others: dict[str, str] = {}
        for key, (value, at) in head.items():
            row = module_attribute(key)
            if row is None:
                if key != SCHEDULED:
                    others[key] = value
                continue
            try:
                # Two attributes may be parts of one message, which protobuf puts together.
                fields[row.field] = fields.get(row.field, b"") + row.parse(value)
            except (BadAttributeError, GraphgenError, ValueError, IndexError) as error:
                reason = value_reason(error)
                what = f"{key}={value[:60]}: {reason or 'this is not understood'}"
                raise self.tokens.fail(what, at) from error
        if others:
            field = ModuleField.TEXT_ATTRIBUTES
            fields[field] = write_frontend_attributes(others, field)
        if self.frames:
            frames = wire.delimited(ModuleField.STACK_FRAMES, b"".join(self.frames))
            fields[ModuleField.STACK_FRAMES] = frames
        return fields

    def _frames(self, section: str) -> None:
        """Parse one of the tables of stack frames, whose lines are numbered from 1."""
        tokens = self.tokens
        tokens.take()
        while tokens.peek().isdigit():
            tokens.take()
            self.frames.append(parse_frame_row(section, tokens.value()))

    def _is_instruction(self) -> bool:
        """The text is one instruction, not a list of computations."""
        tokens = self.tokens
        word = tokens.peek()
        return tokens.follows("=") or (word == "ROOT" and not tokens.follows("{")) or "[" in word

    def _lone_instruction(self) -> None:
        """Parse an instruction whose operands become parameters."""
        tokens, parser = self.tokens, self.instructions
        parser.open_names = True
        made = self.made.begin("entry")
        if "[" in tokens.peek():
            parser.unnamed(made)
        else:
            parser.parse(made)
        self.made.finish("entry", made, entry=True)

    def _computation(self) -> None:
        tokens = self.tokens
        entry = tokens.peek() == "ENTRY"
        if entry:
            tokens.take()
        at = tokens.position()
        # The entry may be without a name.
        name = "" if entry and tokens.peek() == "{" else tokens.name()
        made = self.made.begin(name or "entry")
        if self.made.defines(name):
            raise tokens.fail(f"two computations have the name %{name}", at)
        # The signature repeats the parameters and the root.
        while tokens.peek() and tokens.peek() != "{":
            tokens.group() if tokens.peek() == "(" else tokens.take()
        tokens.expect("{")
        while self.instructions.parse(made):
            pass
        tokens.expect("}")
        self._thread(made)
        self.made.finish(name, made, entry=entry)

    def _thread(self, made: ComputationAssembler) -> None:
        """The attribute after a computation: the thread that runs it."""
        found = self.instructions.attributes()
        made.thread = unquoted(found["execution_thread"][0]) if "execution_thread" in found else ""
