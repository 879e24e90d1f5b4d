"""Assembles an HloModuleProto from parsed HLO text: ids for names, fields in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.ir.names import claim_name
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import (
    ComputationField,
    InstructionField,
    ModuleField,
)
from graphgen.lowering.hlo.proto.instruction import shapes_of_computation
from graphgen.lowering.hlo.proto.shape import HloShape, write_shape
from graphgen.lowering.hlo.text.attributes import MODULE_ATTRIBUTES
from graphgen.lowering.hlo.text.hlo_tokens import HloTokens


@dataclass(slots=True)
class ParsedInstruction:
    """One instruction of a text.

    Attributes:
        name: as in the text.
        at: its place in the text.
        code: its opcode.
        shape: of its result.
        operands: names.
        fields: by number, the parts of its own fields, encoded.
        calls: names of the computations it calls.
        predecessors: names of the instructions it waits for.
        number: its id, once assembled.
        parameter: its parameter number, -1 if it is not a parameter.
        unique: its name in the module, once assembled.
    """

    name: str
    at: int
    code: str
    shape: HloShape
    operands: list[str] = field(default_factory=list[str])
    fields: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    calls: list[str] = field(default_factory=list[str])
    predecessors: list[str] = field(default_factory=list[str])
    number: int = 0
    parameter: int = -1
    unique: str = ""


@dataclass(slots=True)
class ParsedComputation:
    """One computation of a text.

    Attributes:
        name: as in the text.
        body: its instructions.
        root: the instruction whose value it gives.
        entry: it is marked as the program.
    """

    name: str
    body: list[ParsedInstruction] = field(default_factory=list[ParsedInstruction])
    root: ParsedInstruction | None = None
    entry: bool = False


@dataclass(frozen=True, slots=True)
class ParsedModule:
    """A text.

    Attributes:
        name: of the module.
        head: attributes of the module: the text of each value and its place.
        frames: fields of the StackFrameIndexProto, encoded.
        computations: callees before callers.
    """

    name: str
    head: Mapping[str, tuple[str, int]]
    frames: Sequence[bytes]
    computations: Sequence[ParsedComputation]


def assemble(module: ParsedModule, tokens: HloTokens) -> bytes:
    """The HloModuleProto of a parsed text.

    Args:
        module: the text.
        tokens: its tokens, for the places of errors.

    Raises:
        GraphgenError: GG0201 for names that are not defined, or defined twice.
    """
    if not module.computations:
        raise tokens.fail("the text holds no computation")
    ids = {item.name: number for number, item in enumerate(module.computations, 1)}
    if len(ids) != len(module.computations):
        raise tokens.fail("two computations have one name")
    entry = next((c for c in module.computations if c.entry), module.computations[-1])
    _number(module.computations)
    out = [wire.text(ModuleField.NAME, module.name), wire.text(ModuleField.ENTRY_NAME, entry.name)]
    for computation in module.computations:
        body = _computation(computation, ids, tokens)
        out.append(wire.delimited(ModuleField.COMPUTATIONS, body))
    out.append(wire.delimited(ModuleField.PROGRAM_SHAPE, _program_shape(entry)))
    out.append(wire.integer(ModuleField.ENTRY_ID, ids[entry.name]))
    rows = [row for row in MODULE_ATTRIBUTES if row.name in module.head]
    fields = {row.field: row.parse(module.head[row.name][0]) for row in rows}
    if module.frames:
        frames = wire.delimited(ModuleField.STACK_FRAMES, b"".join(module.frames))
        fields[ModuleField.STACK_FRAMES] = frames
    return b"".join([*out, *[fields[number] for number in sorted(fields)]])


def _number(computations: Sequence[ParsedComputation]) -> None:
    """Give each instruction an id and a name of its own: names of a text are per computation."""
    taken: set[str] = set()
    instructions = [item for computation in computations for item in computation.body]
    for number, instruction in enumerate(instructions, 1):
        instruction.number = number
        instruction.unique = claim_name(instruction.name, taken)


def _computation(
    computation: ParsedComputation, ids: Mapping[str, int], tokens: HloTokens
) -> bytes:
    known: dict[str, int] = {}
    out = [wire.text(ComputationField.NAME, computation.name)]
    for item in computation.body:
        if item.name in known:
            raise tokens.fail(f"%{item.name} is defined twice", item.at)
        body = _instruction(item, known, ids, tokens)
        out.append(wire.delimited(ComputationField.INSTRUCTIONS, body))
        known[item.name] = item.number
    out.append(wire.delimited(ComputationField.PROGRAM_SHAPE, _program_shape(computation)))
    out.append(wire.integer(ComputationField.ID, ids[computation.name]))
    root = computation.root.number if computation.root else 0
    out.append(wire.integer(ComputationField.ROOT_ID, root))
    return b"".join(out)


def _instruction(
    item: ParsedInstruction, known: Mapping[str, int], ids: Mapping[str, int], tokens: HloTokens
) -> bytes:
    def found(names: Sequence[str], among: Mapping[str, int]) -> list[int]:
        for name in names:
            if name not in among:
                raise tokens.fail(f"%{name} is not defined before this line", item.at)
        return [among[name] for name in names]

    out = [
        wire.text(InstructionField.NAME, item.unique),
        wire.text(InstructionField.OPCODE, item.code),
        wire.delimited(InstructionField.SHAPE, write_shape(item.shape)),
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


def _program_shape(computation: ParsedComputation) -> bytes:
    parameters = [item for item in computation.body if item.code == "parameter"]
    parameters.sort(key=lambda item: item.parameter)
    return shapes_of_computation(
        [item.shape for item in parameters],
        computation.root.shape if computation.root else None,
        [item.unique for item in parameters],
    )
