"""Assembles an HloModuleProto while HLO text is parsed: ids for names, one instruction at a time.

An instruction is encoded as soon as it is read, since a text defines what it names before. Of a
large text, memory holds the encoded module and the names of one computation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import (
    ComputationField,
    InstructionField,
    ModuleField,
    ProgramShapeField,
    ScheduleField,
)
from graphgen.lowering.hlo_proto.shape import HloShape, write_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.own_fields import OwnFields
from graphgen.lowering.hlo_text.shape_inference import Unshaped, infer_shape
from graphgen.lowering.hlo_text.text_values import TextNameError
from graphgen.numbers import whole_number

_NUMBERED = re.compile(r"(.*)\.(0|[1-9][0-9]*)", re.DOTALL)
_ILLEGAL = re.compile(r"[^\w.\-]", re.ASCII)


class UniqueNames:
    """The names given so far: of each stem, its numbers, of which 0 is the stem alone.

    Attributes:
        last: the name given last.
    """

    def __init__(self) -> None:
        self.last = ""
        self._numbers: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}

    def claim(self, name: str) -> str:
        """``name`` in letters of XLA, with another number where it is taken; taken from now on."""
        self.last = self._claim(name)
        return self.last

    def _claim(self, name: str) -> str:
        name = _ILLEGAL.sub("_", name)
        match = _NUMBERED.fullmatch(name)
        stem, number = (match[1], whole_number(match[2])) if match else (name, 0)
        numbers = self._numbers.get(stem)
        if numbers is None:
            numbers = self._numbers[stem] = set()
        if number in numbers:
            number = self._next.get(stem, 0)
            while number in numbers:
                number += 1
            self._next[stem] = number + 1
        elif match or number == 0:
            numbers.add(number)
            return name
        numbers.add(number)
        return f"{stem}.{number}" if number or match else stem


NOTHING = OwnFields(b"")
_LENGTHS = [wire.varint(size) for size in range(4096)]
_NAME_KEY = wire.varint(InstructionField.NAME << 3 | wire.BYTES)
_OPCODE_KEY = InstructionField.OPCODE
_INSTRUCTION_KEY = wire.varint(ComputationField.INSTRUCTIONS << 3 | wire.BYTES)
_ID_KEY = wire.varint(InstructionField.ID << 3)
_OPERANDS_KEY = wire.varint(InstructionField.OPERAND_IDS << 3 | wire.BYTES)


def _length(size: int) -> bytes:
    return _LENGTHS[size] if size < len(_LENGTHS) else wire.varint(size)


class ComputationAssembler:
    """One computation.

    Args:
        module: what it is a part of.
        name: unique in the module.
        number: its id.

    Attributes:
        known: id, shape and encoded id of each instruction, by its name in the text.
        root: id and shape of its result; of the last instruction where the text marks none.
        parameters: of each number, the shape and the name in the module.
        ids: of its instructions, in order.
        chunks: the encoded instructions.
    """

    def __init__(self, module: ModuleAssembler, name: str, number: int) -> None:
        self.module = module
        self.name = name
        self.number = number
        self.known: dict[str, tuple[int, HloShape, bytes]] = {}
        self.root: tuple[int, HloShape, bytes] | None = None
        self.marked = False
        self.parameters: dict[int, tuple[HloShape, str]] = {}
        self.ids: list[int] = []
        self.chunks: list[bytes] = []
        self.is_fusion = False
        self.thread = ""
        # The computation an asynchronous operation wraps, by the id of its instruction.
        self.wrapped: dict[int, tuple[int, str]] = {}

    def add(
        self,
        name: str,
        code: str,
        shape: HloShape,
        operands: Sequence[str] = (),
        own: OwnFields = NOTHING,
        *,
        root: bool = False,
        more: bytes = b"",
        called: Sequence[int] = (),
    ) -> int:
        """Append an instruction; its id.

        Args:
            name: as in the text.
            code: its opcode.
            shape: of its result.
            operands: names.
            own: its attributes.
            root: its value is the result of the computation.
            more: further fields, encoded.
            called: ids of the computations it calls, beside those that ``own`` names.

        Raises:
            TextNameError: its name is taken, or that of an operand or a computation unknown.
        """
        if name in self.known:
            raise TextNameError(f"%{name} is defined twice")
        module = self.module
        number = module.last_id = module.last_id + 1
        packed = b"".join([self._found(item)[2] for item in operands])
        encoded = wire.varint(number)
        unique = module.names.claim(name).encode()
        parts = [
            _NAME_KEY, _length(len(unique)), unique, module.head(code, shape), own.data, more,
            _ID_KEY, encoded,
        ]  # fmt: skip
        if packed:
            parts += (_OPERANDS_KEY, _length(len(packed)), packed)
        if own.waits:
            waits = [self._found(item)[0] for item in own.waits]
            parts.append(wire.integers(InstructionField.CONTROL_PREDECESSOR_IDS, waits))
        if own.calls or called:
            ids = [*called, *[module.computation(item).number for item in own.calls]]
            # Packed also where it is the id 0.
            parts.append(wire.integers(InstructionField.CALLED_IDS, ids))
            if code == "fusion":
                module.computation(own.calls[0]).is_fusion = True
        data = b"".join(parts)
        self.chunks += (_INSTRUCTION_KEY, _length(len(data)), data)
        self.ids.append(number)
        made = self.known[name] = (number, shape, encoded)
        if root or not self.marked:
            self.root = made
            self.marked = self.marked or root
        return number

    def add_parameter(
        self, name: str, shape: HloShape, number: int, own: OwnFields = NOTHING, *, root: bool
    ) -> None:
        """Append a parameter."""
        more = wire.integer(InstructionField.PARAMETER_NUMBER, number)
        self.add(name, "parameter", shape, (), own, root=root, more=more)
        self.parameters[number] = (shape, self.module.names.last)

    def _found(self, name: str) -> tuple[int, HloShape, bytes]:
        found = self.known.get(name)
        if found is None:
            raise TextNameError(f"%{name} is not defined before this line")
        return found

    def shape(self, name: str) -> HloShape:
        """The shape of an instruction above."""
        return self._found(name)[1]

    def infer(self, code: str, operands: Sequence[str], own: OwnFields) -> HloShape | None:
        """The shape of an instruction for which the text states none; ``None`` if it has to."""
        called = [self.module.computation(name).result for name in own.calls]
        shapes = [self.shape(name) for name in operands]
        try:
            return infer_shape(code, Unshaped(shapes, Message(own.data), called))
        except (IndexError, ValueError, KeyError, StopIteration):
            return None

    @property
    def result(self) -> HloShape:
        """The shape of its result (``TextNameError`` without instructions)."""
        if self.root is None:
            raise TextNameError(f"%{self.name} holds no instruction")
        return self.root[1]

    def program_shape(self) -> bytes:
        """Its ProgramShapeProto."""
        rows = [self.parameters[number] for number in sorted(self.parameters)]
        return program_shape(
            [shape for shape, _ in rows],
            self.root[1] if self.root else None,
            [name for _, name in rows],
        )

    def encode(self) -> list[bytes]:
        """The HloComputationProto, in pieces."""
        return [
            wire.text(ComputationField.NAME, self.name),
            *self.chunks,
            wire.delimited(ComputationField.PROGRAM_SHAPE, self.program_shape()),
            wire.integer(ComputationField.ID, self.number),
            wire.integer(ComputationField.ROOT_ID, self.root[0] if self.root else 0),
            wire.integer(ComputationField.IS_FUSION, self.is_fusion),
            wire.text(ComputationField.EXECUTION_THREAD, self.thread),
        ]


def program_shape(
    parameters: Sequence[HloShape], result: HloShape | None, names: Sequence[str]
) -> bytes:
    """A ProgramShapeProto with layouts, row-major by default."""
    out = [wire.delimited(ProgramShapeField.PARAMETERS, write_shape(shape)) for shape in parameters]
    if result is not None:
        out.append(wire.delimited(ProgramShapeField.RESULT, write_shape(result)))
    out += [wire.delimited(ProgramShapeField.PARAMETER_NAMES, name.encode()) for name in names]
    return b"".join(out)


class ModuleAssembler:
    """One module; its computations, callees before callers."""

    def __init__(self) -> None:
        self.names = UniqueNames()
        self.last_id = 0
        self.computations: list[ComputationAssembler] = []
        self.entry: ComputationAssembler | None = None
        self._by_name: dict[str, ComputationAssembler] = {}
        self._computation_names = UniqueNames()
        self._heads: dict[tuple[str, HloShape], bytes] = {}

    def begin(self, name: str) -> ComputationAssembler:
        """A computation whose instructions follow; it is not yet known by its name."""
        unique = self._computation_names.claim(name) if name else ""
        return ComputationAssembler(self, unique, 0)

    def finish(
        self, name: str, made: ComputationAssembler, *, entry: bool = False, stem: str = ""
    ) -> None:
        """Make a computation known by its name in the text, unless that is empty.

        Args:
            name: in the text.
            made: the computation.
            entry: it is the module's.
            stem: of its name in the module, where it began without one.
        """
        made.name = made.name or self._computation_names.claim(stem)
        made.number = len(self.computations) + 1
        self.computations.append(made)
        if name:
            self._by_name[name] = made
        if entry:
            self.entry = made

    def defines(self, name: str) -> bool:
        """A computation of this name is above."""
        return name in self._by_name

    def computation(self, name: str) -> ComputationAssembler:
        """The computation of a name (``TextNameError``)."""
        found = self._by_name.get(name)
        if found is None:
            raise TextNameError(f"%{name} is not defined before this line")
        return found

    def head(self, code: str, shape: HloShape) -> bytes:
        """Opcode and shape, encoded once per pair."""
        found = self._heads.get((code, shape))
        if found is None:
            found = wire.text(_OPCODE_KEY, code)
            found += wire.delimited(InstructionField.SHAPE, write_shape(shape))
            self._heads[code, shape] = found
        return found

    def encode(self, name: str, fields: Mapping[int, bytes], *, scheduled: bool) -> bytes:
        """The HloModuleProto.

        Args:
            name: of the module.
            fields: its further fields, by number.
            scheduled: the order of instructions is their schedule.
        """
        entry = self.entry or self.computations[-1]
        out = [wire.text(ModuleField.NAME, name), wire.text(ModuleField.ENTRY_NAME, entry.name)]
        for computation in self.computations:
            pieces = computation.encode()
            out += (wire.head(ModuleField.COMPUTATIONS, sum(map(len, pieces))), *pieces)
            computation.chunks.clear()
        if ModuleField.PROGRAM_SHAPE not in fields:
            shape = entry.program_shape()
            out.append(wire.delimited(ModuleField.PROGRAM_SHAPE, shape))
        out.append(wire.integer(ModuleField.ENTRY_ID, entry.number))
        if scheduled:
            out.append(wire.delimited(ModuleField.SCHEDULE, self._schedule()))
        return b"".join([*out, *[fields[number] for number in sorted(fields)]])

    def _schedule(self) -> bytes:
        """An HloScheduleProto of the order of the text."""
        out: list[bytes] = []
        for computation in self.computations:
            if not computation.is_fusion:
                sequence = wire.integers(ScheduleField.INSTRUCTION_IDS, computation.ids)
                row = wire.integer(ScheduleField.COMPUTATION, computation.number)
                row += wire.delimited(ScheduleField.SEQUENCE, sequence)
                out.append(wire.delimited(ScheduleField.SEQUENCES, row))
        return b"".join(out)
