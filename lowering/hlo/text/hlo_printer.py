"""Printer of HLO protobufs as text, in the syntax of XLA.

A field without a syntax is never left out: it is refused by name. Attributes that a text had and
the protobuf has no field for are printed as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphgen.errors import GraphgenError
from graphgen.ir.names import claim_name
from graphgen.lowering.hlo.proto.fields import (
    ComputationField,
    InstructionField,
    ModuleField,
    ScheduleField,
    StackFramesField,
)
from graphgen.lowering.hlo.proto.known_fields import (
    COMPUTATION,
    INSTRUCTION,
    MODULE,
    Known,
    unknown_field,
)
from graphgen.lowering.hlo.proto.proto_module import (
    HloComputation,
    HloModule,
    open_hlo,
    read_frontend_attributes,
)
from graphgen.lowering.hlo.proto.shape import read_shape
from graphgen.lowering.hlo.proto.wire import Message, Source
from graphgen.lowering.hlo.text.attributes import ATTRIBUTES, UNKNOWN_ATTRIBUTE
from graphgen.lowering.hlo.text.module_attributes import MODULE_ATTRIBUTES, SCHEDULED
from graphgen.lowering.hlo.text.values.constants_text import show_literal
from graphgen.lowering.hlo.text.values.quoted import quoted
from graphgen.lowering.hlo.text.values.stack_frames import show_frames

# Attributes that name called computations; ``to_apply`` for any other opcode.
_CALLS = {
    "while": ("body", "condition"),
    "fusion": ("calls",),
    "async-start": ("calls",),
    "select-and-scatter": ("select", "scatter"),
}
_LISTS = {"conditional": "branch_computations", "custom-call": "called_computations"}
_CHOICE = ("true_computation", "false_computation")


def print_hlo_text(source: Source) -> str:
    """Print an HLO protobuf, constants in full.

    Raises:
        GraphgenError: GG0801 what is damaged, or has no form in HLO text.
    """
    return "\n".join(hlo_lines(open_hlo(source))) + "\n"


def hlo_lines(module: HloModule) -> Iterator[str]:
    """Print a module, line by line (GG0801)."""
    return _TextPrinter(module).lines()


class _TextPrinter:
    def __init__(self, module: HloModule) -> None:
        self.module = module
        taken: set[str] = set()
        self.names = {item.id: _free(item.name, taken) for item in module.computations}
        self.orders = _orders(module.message)
        self.known: dict[int, str] = {}
        # Encoded shapes of the instructions of a computation, by id.
        self.shapes: dict[int, bytes] = {}

    def lines(self) -> Iterator[str]:
        """Print the module."""
        message = self.module.message
        _refuse(message, MODULE, "the module")
        parts = [f"HloModule {self.module.name or 'module'}"]
        if self.orders:
            parts.append(f"{SCHEDULED}=true")
        parts += [
            f"{row.name}={shown}" for row in MODULE_ATTRIBUTES if (shown := row.show(message))
        ]
        others = read_frontend_attributes(message, ModuleField.TEXT_ATTRIBUTES)
        parts += [f"{key}={value}" for key, value in others.items()]
        yield ", ".join(parts)
        frames = message.message(ModuleField.STACK_FRAMES)
        if frames is not None and frames.has(StackFramesField.FRAMES):
            yield ""
            yield from show_frames(frames)
        for computation in self.module.computations:
            yield ""
            yield from self._computation(computation)

    def _computation(self, computation: HloComputation) -> Iterator[str]:
        _refuse(computation.message, COMPUTATION, f"%{computation.name}")
        entry = computation is self.module.entry
        yield ("ENTRY " if entry else "") + f"%{self.names[computation.id]} {{"
        taken: set[str] = set()
        self.known = {}
        self.shapes = {}
        for instruction in self._in_order(computation):
            number = instruction.integer(InstructionField.ID)
            name = self.known[number] = _free(instruction.text(InstructionField.NAME), taken)
            _refuse(instruction, INSTRUCTION, f"%{name}")
            self.shapes[number] = instruction.data(InstructionField.SHAPE)
            mark = "ROOT " if number == computation.root_id else ""
            yield f"  {mark}{self._instruction(instruction)}"
        thread = computation.message.text(ComputationField.EXECUTION_THREAD)
        # The thread of the program, which all others are not on.
        plain = thread in ("", "main")
        yield "}" if plain else f"}}, execution_thread={quoted(thread)}"

    def _in_order(self, computation: HloComputation) -> Iterator[Message]:
        """The instructions in the order of the schedule, if there is one."""
        order = self.orders.get(computation.id)
        if order is None:
            return computation.instructions()
        by_id = {i.integer(InstructionField.ID): i for i in computation.instructions()}
        if by_id.keys() != set(order):
            raise GraphgenError(
                "GG0801", f"the schedule of %{computation.name} is of other instructions"
            )
        return iter([by_id[number] for number in order])

    def _instruction(self, i: Message) -> str:
        code = i.text(InstructionField.OPCODE)
        shape = read_shape(i.data(InstructionField.SHAPE)).text
        if code == "parameter":
            inside = str(i.integer(InstructionField.PARAMETER_NUMBER))
        elif code == "constant":
            inside = show_literal(i.message(InstructionField.LITERAL))
        else:
            reads = i.integers(InstructionField.OPERAND_IDS)
            inside = ", ".join([self._name(number) for number in reads])
        head = f"{self._name(i.integer(InstructionField.ID))} = {shape} {code}({inside})"
        calls = self._calls(i, code)
        attrs = [
            f"{row.name}={shown}"
            for row in ATTRIBUTES
            if (not row.only or code in row.only) and (shown := row.show(i))
        ]
        attrs += _unknown_attributes(i)
        before = i.integers(InstructionField.CONTROL_PREDECESSOR_IDS)
        if before:
            names = ", ".join([self._name(number) for number in before])
            attrs.insert(0, f"control-predecessors={{{names}}}")
        # Attributes of every instruction follow those of the opcode.
        own = [item for item in attrs if not item.startswith(_LAST)]
        rest = [item for item in attrs if item.startswith(_LAST)]
        return ", ".join([head, *own, *calls, *rest])

    def _name(self, number: int) -> str:
        return f"%{self.known.get(number, number)}"

    def _calls(self, i: Message, code: str) -> list[str]:
        ids = i.integers(InstructionField.CALLED_IDS)
        called = [f"%{self.names.get(number, number)}" for number in ids]
        keys = _CALLS.get(code, ("to_apply",))
        if code == "conditional" and self._is_choice(i):
            keys = _CHOICE
        elif called and (code in _LISTS or len(keys) != len(called)):
            return [f"{_LISTS.get(code, 'called_computations')}={{{', '.join(called)}}}"]
        return [f"{key}={name}" for key, name in zip(keys, called, strict=False)]

    def _is_choice(self, conditional: Message) -> bool:
        """True for a conditional by a truth value, not by an index."""
        reads = conditional.integers(InstructionField.OPERAND_IDS)
        shape = self.shapes.get(reads[0]) if reads else None
        return shape is not None and read_shape(shape).element == "pred"


def _refuse(message: Message, known: Known, where: str) -> None:
    """Refuse a message with a field that HLO text has no form for (GG0801)."""
    found = unknown_field(message, known)
    if found:
        raise GraphgenError(
            "GG0801",
            f"field {found} of {where} has no form in HLO text",
            help="write a protobuf: it keeps every field",
        )


def _unknown_attributes(i: Message) -> list[str]:
    """Attributes of the text that have no row, as they were."""
    if not i.has(InstructionField.FRONTEND_ATTRIBUTES):
        return []
    found = read_frontend_attributes(i, InstructionField.FRONTEND_ATTRIBUTES)
    return [
        f"{key.removeprefix(UNKNOWN_ATTRIBUTE)}={value}"
        for key, value in found.items()
        if key.startswith(UNKNOWN_ATTRIBUTE)
    ]


def _orders(message: Message) -> dict[int, tuple[int, ...]]:
    """The schedule: of each computation, the ids of its instructions in order."""
    schedule = message.message(ModuleField.SCHEDULE)
    rows = schedule.messages(ScheduleField.SEQUENCES) if schedule else []
    found: dict[int, tuple[int, ...]] = {}
    for row in rows:
        sequence = row.message(ScheduleField.SEQUENCE)
        ids = sequence.integers(ScheduleField.INSTRUCTION_IDS) if sequence else ()
        found[row.integer(ScheduleField.COMPUTATION)] = ids
    return found


def _free(name: str, taken: set[str]) -> str:
    """``name`` in letters of HLO text, with a number where it is taken."""
    wanted = re.sub(r"[^\w.\-]", "_", name, flags=re.ASCII)
    wanted = wanted if re.match(r"[A-Za-z_]", wanted) else f"_{wanted}"
    return claim_name(wanted, taken)


_LAST = (
    *("sharding=", "parameter_replication=", "statistics=", "origin=", "result_accuracy="),
    *("frontend_attributes=", "metadata=", "backend_config=", "control-pre"),
)
