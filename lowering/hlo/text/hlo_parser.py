"""Parser of HLO text, as printed by every version of XLA and by Neuron's tools.

Names may have a ``%`` or not, operands their shapes before them or not, computations a signature
or not; constants may be elided (``{...}``), which leaves a literal without elements.
"""

from __future__ import annotations

import re

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import (
    InstructionField,
    StackFramesField,
)
from graphgen.lowering.hlo.proto.instruction import write_frontend_attributes
from graphgen.lowering.hlo.proto.shape import HloShape
from graphgen.lowering.hlo.text.attribute_values import (
    BadAttributeError,
    numbers,
    unquoted,
)
from graphgen.lowering.hlo.text.attributes import (
    IGNORED,
    ORIGINAL_API,
    UNKNOWN_ATTRIBUTE,
    attribute_named,
)
from graphgen.lowering.hlo.text.hlo_assembler import (
    ParsedComputation,
    ParsedInstruction,
    ParsedModule,
    assemble,
)
from graphgen.lowering.hlo.text.hlo_constants import parse_literal
from graphgen.lowering.hlo.text.hlo_shapes import parse_shape
from graphgen.lowering.hlo.text.hlo_tokens import HloTokens

# Attributes that name computations, in the order their ids are kept.
CALLS = (
    *("to_apply", "calls", "body", "condition", "true_computation", "false_computation"),
    *("branch_computations", "select", "scatter", "called_computations"),
)
_FRAMES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


def looks_like_text(head: bytes) -> bool:
    """Recognize HLO text by its first bytes."""
    return re.match(rb"(?:\s|//[^\n]*\n|/\*.*?\*/)*HloModule[\s,]", head, re.DOTALL) is not None


def parse_hlo_text(text: str, name: str = "<text>") -> bytes:
    """Parse HLO text as an HloModuleProto.

    Args:
        text: one module.
        name: of the file, for error messages.

    Raises:
        GraphgenError: GG0201 with file, line and column.
    """
    return _HloParser(HloTokens(text, name)).module()


class _HloParser:
    def __init__(self, tokens: HloTokens) -> None:
        self.tokens = tokens
        self.computations: list[ParsedComputation] = []
        self.frames: list[bytes] = []
        self.shapes: dict[str, HloShape] = {}

    def module(self) -> bytes:
        """Parse the whole text."""
        tokens = self.tokens
        tokens.expect("HloModule")
        name = tokens.take().removeprefix("%") if tokens.peek() != "," else ""
        head = self._attributes()
        while (token := tokens.peek()) in _FRAMES:
            self._frames(token)
        while tokens.peek():
            self._computation()
        parsed = ParsedModule(name.rstrip(","), head, self.frames, self.computations)
        return assemble(parsed, tokens)

    def _attributes(self) -> dict[str, tuple[str, int]]:
        """Parse ``, key=value`` repeatedly: the text of each value and its place."""
        tokens = self.tokens
        found: dict[str, tuple[str, int]] = {}
        while tokens.peek() == ",":
            tokens.take()
            if not tokens.peek() or tokens.peek(1) != "=":
                break
            key = tokens.take()
            tokens.expect("=")
            at = tokens.position()
            found[key] = (tokens.value(), at)
        return found

    def _frames(self, section: str) -> None:
        """Parse one of the tables of stack frames, whose lines are numbered from 1."""
        tokens = self.tokens
        tokens.take()
        number = _FRAMES.index(section) + 1
        while tokens.peek().isdigit():
            tokens.take()
            if number <= StackFramesField.FUNCTION_NAMES:
                self.frames.append(wire.text(number, unquoted(tokens.take())))
                continue
            pairs = dict(re.findall(r"(\w+)=(\d+)", tokens.value()))
            keys = ("file_name_id", "function_name_id", "line", "column")
            if section == "StackFrames":
                keys = ("file_location_id", "parent_frame_id")
            inner = b"".join(
                wire.integer(i, int(pairs.get(key, 0))) for i, key in enumerate(keys, 1)
            )
            self.frames.append(wire.delimited(number, inner))

    def _computation(self) -> None:
        tokens = self.tokens
        entry = tokens.peek() == "ENTRY"
        if entry:
            tokens.take()
        made = ParsedComputation(tokens.name(), entry=entry)
        # The signature repeats the parameters and the root.
        while tokens.peek() and tokens.peek() != "{":
            tokens.group() if tokens.peek() == "(" else tokens.take()
        tokens.expect("{")
        while tokens.peek() and tokens.peek() != "}":
            root = tokens.peek() == "ROOT" and tokens.peek(1) != "="
            if root:
                tokens.take()
            instruction = self._instruction()
            made.body.append(instruction)
            if root:
                made.root = instruction
        tokens.expect("}")
        self._attributes()
        made.root = made.root or (made.body[-1] if made.body else None)
        self.computations.append(made)

    def _instruction(self) -> ParsedInstruction:
        tokens = self.tokens
        at = tokens.position()
        name = tokens.name()
        tokens.expect("=")
        shape = self._shape()
        code = tokens.take()
        if tokens.peek() != "(":
            raise tokens.fail("expected: name = shape opcode(operands), attribute=value")
        made = ParsedInstruction(name, at, code, shape)
        if code == "parameter":
            text = tokens.group()
            number = numbers(text)
            if len(number) != 1:
                raise tokens.fail(f"'{text}' is no number of a parameter", at)
            made.parameter = number[0]
            given = wire.integer(InstructionField.PARAMETER_NUMBER, number[0])
            made.fields[InstructionField.PARAMETER_NUMBER] = [given]
        elif code == "constant":
            start = tokens.position()
            try:
                literal = parse_literal(tokens.group()[1:-1], shape)
            except (GraphgenError, ValueError, OverflowError) as error:
                reason = error.what if isinstance(error, GraphgenError) else str(error)
                raise tokens.fail(f"constant: {reason}", start) from error
            made.fields[InstructionField.LITERAL] = [
                wire.delimited(InstructionField.LITERAL, literal)
            ]
        else:
            made.operands = self._operands()
        given = self._attributes()
        if code == "custom-call" and "api_version" not in given:
            number = InstructionField.CUSTOM_CALL_API_VERSION
            made.fields[number] = [wire.integer(number, ORIGINAL_API)]
        for key in (*CALLS, *given):
            if key in given:
                value, where = given.pop(key)
                self._attribute(made, key, value, where)
        return made

    def _shape(self) -> HloShape:
        at = self.tokens.position()
        text = self.tokens.shape()
        found = self.shapes.get(text)
        if found is None:
            try:
                found = self.shapes[text] = parse_shape(text)
            except GraphgenError as error:
                raise self.tokens.fail(error.what, at) from error
        return found

    def _operands(self) -> list[str]:
        """Parse operands: the last word of each, after its optional shape."""
        tokens = self.tokens
        tokens.expect("(")
        names: list[str] = []
        last = ""
        while (token := tokens.peek()) != ")":
            if not token:
                raise tokens.fail("the text ends inside the operands")
            if token == ",":
                names.append(last)
                last = ""
                tokens.take()
            elif token == "(":
                tokens.group()
            else:
                last = tokens.take()
        tokens.take()
        return [name.removeprefix("%") for name in (*names, last) if name]

    def _attribute(self, made: ParsedInstruction, key: str, value: str, at: int) -> None:
        if key in CALLS:
            made.calls += re.findall(r"%?([\w.$\-]+)", value)
            return
        if key == "control-predecessors":
            made.predecessors += re.findall(r"%?([\w.$\-]+)", value)
            return
        if key in IGNORED:
            return
        row = attribute_named(key, made.code)
        if row is None:
            # Kept as a frontend attribute, with which the instruction is read as opaque.
            kept = write_frontend_attributes({UNKNOWN_ATTRIBUTE + key: value})
            made.fields.setdefault(InstructionField.FRONTEND_ATTRIBUTES, []).append(kept)
            return
        try:
            data = row.parse(value)
        except (BadAttributeError, GraphgenError, ValueError, IndexError, KeyError) as error:
            reason = error.what if isinstance(error, GraphgenError) else str(error)
            what = f"{key}={value[:60]}: {reason or 'this is not understood'}"
            raise self.tokens.fail(what, at) from error
        parts = made.fields.setdefault(row.field, [])
        parts.append(wire.delimited(row.field, data) if row.inside else data)
