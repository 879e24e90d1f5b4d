"""HLO text as the protobuf it stands for: XLA's printing of every age, and Neuron's.

Names may have a ``%`` or not, operands their shapes before them or not, computations a signature
or not; constants may be elided (``{...}``), which leaves a literal without elements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import (
    AliasField,
    ComputationField,
    InstructionField,
    ModuleField,
    ProgramShapeField,
    StackFramesField,
)
from graphgen.lowering.hlo.proto.instruction import frontend_attributes
from graphgen.lowering.hlo.proto.shape import HloShape, write_shape
from graphgen.lowering.hlo.text.attribute_values import (
    BadAttributeError,
    numbers,
    parse_map,
    unquoted,
)
from graphgen.lowering.hlo.text.attributes import (
    IGNORED,
    ORIGINAL_API,
    UNKNOWN_ATTRIBUTE,
    attribute_named,
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
    """Whether a file that begins like this holds HLO text."""
    return re.match(rb"(?:\s|//[^\n]*\n|/\*.*?\*/)*HloModule[\s,]", head, re.DOTALL) is not None


def parse_hlo_text(text: str, name: str = "<text>") -> bytes:
    """The HloModuleProto of HLO text.

    Args:
        text: one module.
        name: of the file, for error messages.

    Raises:
        GraphgenError: GG0201 with file, line and column.
    """
    return _HloParser(HloTokens(text, name)).module()


@dataclass(slots=True)
class _Instruction:
    name: str
    at: int
    code: str
    shape: HloShape
    operands: list[str]
    fields: dict[int, list[bytes]]
    calls: list[str] = field(default_factory=list[str])
    predecessors: list[str] = field(default_factory=list[str])
    number: int = 0
    parameter: int = -1
    unique: str = ""


@dataclass(slots=True)
class _Computation:
    name: str
    body: list[_Instruction] = field(default_factory=list[_Instruction])
    root: _Instruction | None = None
    entry: bool = False


class _HloParser:
    def __init__(self, tokens: HloTokens) -> None:
        self.tokens = tokens
        self.computations: list[_Computation] = []
        self.frames: list[bytes] = []
        self.shapes: dict[str, HloShape] = {}

    def module(self) -> bytes:
        """The whole text."""
        tokens = self.tokens
        tokens.expect("HloModule")
        name = tokens.take().removeprefix("%") if tokens.peek() != "," else ""
        head = self._attributes()
        while (token := tokens.peek()) in _FRAMES:
            self._frames(token)
        while tokens.peek():
            self._computation()
        return self._assemble(name.rstrip(","), head)

    def _attributes(self) -> dict[str, tuple[str, int]]:
        """``, key=value`` as often as it comes: the text of each value and where it stands."""
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
        """One of the tables of stack frames, each line numbered from 1."""
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
        made = _Computation(tokens.name(), entry=entry)
        # Parameters and result are told again inside.
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

    def _instruction(self) -> _Instruction:
        tokens = self.tokens
        at = tokens.position()
        name = tokens.name()
        tokens.expect("=")
        shape = self._shape()
        code = tokens.take()
        if tokens.peek() != "(":
            raise tokens.fail("expected: name = shape opcode(operands), attribute=value")
        made = _Instruction(name, at, code, shape, [], {})
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
        """The last word of each operand: what stands before it is its shape."""
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

    def _attribute(self, made: _Instruction, key: str, value: str, at: int) -> None:
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
            # Kept as a string, which makes the instruction an opaque one.
            kept = frontend_attributes({UNKNOWN_ATTRIBUTE + key: value})
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

    def _assemble(self, name: str, head: dict[str, tuple[str, int]]) -> bytes:
        """The protobuf, with an id for everything."""
        if not self.computations:
            raise self.tokens.fail("the text holds no computation")
        ids = {item.name: number for number, item in enumerate(self.computations, 1)}
        if len(ids) != len(self.computations):
            raise self.tokens.fail("two computations have one name")
        entry = next((c for c in self.computations if c.entry), self.computations[-1])
        number = 0
        taken: set[str] = set()
        for computation in self.computations:
            for instruction in computation.body:
                number += 1
                instruction.number = number
                instruction.unique = _unique(instruction.name, taken)
        out = [wire.text(ModuleField.NAME, name), wire.text(ModuleField.ENTRY_NAME, entry.name)]
        for computation in self.computations:
            body = self._computation_bytes(computation, ids)
            out.append(wire.delimited(ModuleField.COMPUTATIONS, body))
        shape = _program_shape(entry)
        out.append(wire.delimited(ModuleField.PROGRAM_SHAPE, shape))
        out.append(wire.integer(ModuleField.ENTRY_ID, ids[entry.name]))
        out.append(_aliases(head.get("input_output_alias", ("", 0))[0]))
        if self.frames:
            out.append(wire.delimited(ModuleField.STACK_FRAMES, b"".join(self.frames)))
        out.append(_donors(head.get("buffer_donor", ("", 0))[0]))
        if "frontend_attributes" in head:
            entries = parse_map(head["frontend_attributes"][0])
            out.append(wire.delimited(ModuleField.FRONTEND_ATTRIBUTES, entries))
        return b"".join(out)

    def _computation_bytes(self, computation: _Computation, ids: dict[str, int]) -> bytes:
        numbers_: dict[str, int] = {}
        out = [wire.text(ComputationField.NAME, computation.name)]
        for item in computation.body:
            if item.name in numbers_:
                raise self.tokens.fail(f"%{item.name} is defined twice", item.at)
            body = self._instruction_bytes(item, numbers_, ids)
            out.append(wire.delimited(ComputationField.INSTRUCTIONS, body))
            numbers_[item.name] = item.number
        out.append(wire.delimited(ComputationField.PROGRAM_SHAPE, _program_shape(computation)))
        out.append(wire.integer(ComputationField.ID, ids[computation.name]))
        root = computation.root.number if computation.root else 0
        out.append(wire.integer(ComputationField.ROOT_ID, root))
        return b"".join(out)

    def _instruction_bytes(
        self, item: _Instruction, known: dict[str, int], ids: dict[str, int]
    ) -> bytes:
        def found(names: list[str], among: dict[str, int]) -> list[int]:
            for name in names:
                if name not in among:
                    raise self.tokens.fail(f"%{name} is not defined before this line", item.at)
            return [among[name] for name in names]

        shape = write_shape(item.shape)
        out = [
            wire.text(InstructionField.NAME, item.unique),
            wire.text(InstructionField.OPCODE, item.code),
            wire.delimited(InstructionField.SHAPE, shape),
        ]
        ordered = sorted(item.fields.items())
        out += [b"".join(parts) for number, parts in ordered if number < InstructionField.ID]
        out.append(wire.integer(InstructionField.ID, item.number))
        out.append(wire.integers(InstructionField.OPERAND_IDS, found(item.operands, known)))
        before = found(item.predecessors, known)
        out.append(wire.integers(InstructionField.CONTROL_PREDECESSOR_IDS, before))
        out.append(wire.integers(InstructionField.CALLED_IDS, found(item.calls, ids)))
        out += [b"".join(parts) for number, parts in ordered if number > InstructionField.ID]
        return b"".join(out)


def _unique(name: str, taken: set[str]) -> str:
    """A name of the text, which need be one computation's only, as one of the whole module."""
    found, count = name, 0
    while found in taken:
        count += 1
        found = f"{name}.{count}"
    taken.add(found)
    return found


def _program_shape(computation: _Computation) -> bytes:
    parameters = sorted(
        (item for item in computation.body if item.code == "parameter"),
        key=lambda item: item.parameter,
    )
    out = [
        wire.delimited(ProgramShapeField.PARAMETERS, write_shape(item.shape, layout=False))
        for item in parameters
    ]
    if computation.root is not None:
        result = write_shape(computation.root.shape, layout=False)
        out.append(wire.delimited(ProgramShapeField.RESULT, result))
    out += [wire.text(ProgramShapeField.PARAMETER_NAMES, item.unique) for item in parameters]
    return b"".join(out)


_INDEX = r"\{([\d,\s]*)\}"


def _aliases(text: str) -> bytes:
    """``{ {1}: (3, {}, must-alias), {}: 2 }``."""
    entries: list[bytes] = []
    pattern = rf"{_INDEX}:\s*(?:\((\d+),\s*{_INDEX}(?:,\s*([\w\-]+))?\)|(\d+))"
    for output, number, index, kind, plain in re.findall(pattern, text[1:-1]):
        must = 1 if kind == "may-alias" else AliasField.MUST_ALIAS
        inner = wire.integers(AliasField.OUTPUT_INDEX, numbers(output))
        inner += wire.integer(AliasField.PARAMETER, int(number or plain))
        inner += wire.integers(AliasField.PARAMETER_INDEX, numbers(index))
        inner += wire.integer(AliasField.KIND, must)
        entries.append(wire.delimited(AliasField.ENTRIES, inner))
    return wire.delimited(ModuleField.ALIAS, b"".join(entries)) if entries else b""


def _donors(text: str) -> bytes:
    """``{ (0, {}), (2, {1}) }``."""
    entries = [
        wire.delimited(
            AliasField.ENTRIES,
            wire.integer(AliasField.DONOR_PARAMETER, int(number))
            + wire.integers(AliasField.DONOR_INDEX, numbers(index)),
        )
        for number, index in re.findall(rf"\((\d+),\s*{_INDEX}\)", text)
    ]
    return wire.delimited(ModuleField.DONORS, b"".join(entries)) if entries else b""
