"""Summary of an HLO file: counts of one walk over the protobuf, without a graph.

Of each instruction only its own fields are looked at. Elements of constants are not read, so a file
of gigabytes takes as much memory as its longest computation has bytes of places.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir.dtype import DTYPES
from graphgen.lowering.hlo_proto.fields import (
    AliasField,
    InstructionField,
    LiteralField,
    ModuleField,
)
from graphgen.lowering.hlo_proto.proto_module import HloComputation, open_hlo
from graphgen.lowering.hlo_proto.replica_groups import read_groups
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape
from graphgen.lowering.hlo_proto.wire import Message, Source

COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"),
    *("collective-broadcast", "all-reduce-start", "all-gather-start"),
)


@dataclass(frozen=True, slots=True)
class HloParameter:
    """One parameter of the program.

    Attributes:
        name: the instruction's.
        shape: as HLO writes it.
        nbytes: its size.
        aliased: an output takes over its buffer.
    """

    name: str
    shape: str
    nbytes: int
    aliased: bool


@dataclass(frozen=True, slots=True)
class HloSummary:
    """Contents of a module.

    Attributes:
        name: of the module.
        entry: of the entry computation.
        computations: their number.
        opcodes: instructions of all computations, by opcode.
        parameters: of the entry computation, in order.
        outputs: their shapes.
        constant_bytes: of the elements of all constants, as stored.
        largest: the constants with the most bytes, name and bytes.
        collectives: number by opcode and group size.
        custom_calls: number by target.
        highest_id: of an instruction; above 2**31 - 1 old readers refuse the file.
    """

    name: str
    entry: str
    computations: int
    opcodes: dict[str, int]
    parameters: tuple[HloParameter, ...]
    outputs: tuple[str, ...]
    constant_bytes: int
    largest: tuple[tuple[str, int], ...]
    collectives: dict[str, int]
    custom_calls: dict[str, int]
    highest_id: int


def summarize_hlo(source: Source) -> HloSummary:
    """Summarize an HLO protobuf (GG0801 where it is damaged)."""
    module = open_hlo(source)
    walk = _InstructionCounts()
    for computation in module.computations:
        walk.computation(computation)
    entry = module.entry
    aliased = _aliased(module.message)
    parameters, result = _interface(entry)
    return HloSummary(
        module.name,
        entry.name,
        len(module.computations),
        dict(walk.opcodes.most_common()),
        tuple(
            HloParameter(name, shape.text, bytes_of(shape), number in aliased)
            for number, (name, shape) in sorted(parameters.items())
        ),
        tuple(leaf.text for leaf in result.leaves) if result else (),
        walk.constant_bytes,
        tuple(sorted(walk.constants, key=lambda item: -item[1])[:5]),
        dict(walk.collectives),
        dict(walk.custom_calls),
        walk.highest_id,
    )


def bytes_of(shape: HloShape) -> int:
    """Dense size in bytes, of all members of a tuple; 0 for tokens and opaque types."""
    total = 0
    for leaf in shape.leaves:
        kind = DTYPES.get(leaf.element)
        bits = kind.bits if kind else {"c128": 128, "token": 0, "opaque": 0}.get(leaf.element, 8)
        total += -(-math.prod(leaf.dims) * bits // 8)
    return total


class _InstructionCounts:
    def __init__(self) -> None:
        self.opcodes: Counter[str] = Counter()
        self.collectives: Counter[str] = Counter()
        self.custom_calls: Counter[str] = Counter()
        self.constants: list[tuple[str, int]] = []
        self.constant_bytes = 0
        self.highest_id = 0

    def computation(self, computation: HloComputation) -> None:
        for instruction in computation.instructions():
            code = instruction.text(InstructionField.OPCODE)
            self.opcodes[code] += 1
            self.highest_id = max(self.highest_id, instruction.integer(InstructionField.ID))
            if code == "constant":
                self._constant(instruction)
            elif code == "custom-call":
                self.custom_calls[instruction.text(InstructionField.CUSTOM_CALL_TARGET)] += 1
            elif code in COLLECTIVES:
                sizes = sorted({len(group) for group in read_groups(instruction)})
                size = "/".join(map(str, sizes)) or "all"
                self.collectives[f"{code} of {size}"] += 1

    def _constant(self, instruction: Message) -> None:
        literal = instruction.message(InstructionField.LITERAL)
        if literal is None:
            return
        size = sum(
            value[1] - value[0]
            for number, values in literal.fields.items()
            if number != LiteralField.SHAPE
            for value in values
            if not isinstance(value, int)
        )
        self.constant_bytes += size
        self.constants.append((instruction.text(InstructionField.NAME), size))
        if len(self.constants) > 64:
            self.constants = sorted(self.constants, key=lambda item: -item[1])[:5]


def _aliased(message: Message) -> set[int]:
    table = message.message(ModuleField.ALIAS)
    entries = table.messages(AliasField.ENTRIES) if table else []
    return {item.integer(AliasField.PARAMETER) for item in entries}


def _interface(entry: HloComputation) -> tuple[dict[int, tuple[str, HloShape]], HloShape | None]:
    parameters: dict[int, tuple[str, HloShape]] = {}
    result: HloShape | None = None
    for instruction in entry.instructions():
        is_parameter = instruction.text(InstructionField.OPCODE) == "parameter"
        is_root = instruction.integer(InstructionField.ID) == entry.root_id
        if not is_parameter and not is_root:
            continue
        shape = read_shape(instruction.data(InstructionField.SHAPE))
        if is_parameter:
            number = instruction.integer(InstructionField.PARAMETER_NUMBER)
            if number in parameters:
                raise GraphgenError("GG0801", f"there are two parameters {number}")
            parameters[number] = (instruction.text(InstructionField.NAME), shape)
        if is_root:
            result = shape
    return parameters, result
