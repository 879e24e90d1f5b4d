"""Printer of HLO protobufs as text, in the syntax of XLA.

A field without a syntax is never left out: it is refused by name. Attributes that a text had and
the protobuf has no field for are printed as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from graphgen.errors import GraphgenError
from graphgen.ir.names import claim_name
from graphgen.lowering.hlo_proto.fields import (
    ComputationField,
    ConfigField,
    InstructionField,
    ModuleField,
    ScheduleField,
    StackFramesField,
)
from graphgen.lowering.hlo_proto.fields import RareField as R
from graphgen.lowering.hlo_proto.proto_module import (
    HloComputation,
    HloModule,
    open_hlo,
    read_frontend_attributes,
)
from graphgen.lowering.hlo_proto.shape import read_shape
from graphgen.lowering.hlo_proto.wire import Message, Source
from graphgen.lowering.hlo_text.attributes import ATTRIBUTES, UNKNOWN_ATTRIBUTE
from graphgen.lowering.hlo_text.constants_text import show_literal
from graphgen.lowering.hlo_text.metadata import show_frames
from graphgen.lowering.hlo_text.module_attributes import MODULE_ATTRIBUTES, NOT_IN_TEXT, SCHEDULED
from graphgen.lowering.hlo_text.text_values import quoted

Known: TypeAlias = Mapping[int, "Known | None"]
F = InstructionField


def _numbers(*last: int, **_: int) -> dict[int, Known | None]:
    return dict.fromkeys(range(1, last[0] + 1))


_METADATA: Known = dict.fromkeys((1, 2, 3, 4, 5, 8, 9, 12, 15, 16, 17, 18, 19))
_LAYOUT: Known = {**dict.fromkeys((1, 7, 8, 9, 11, 12, 13, 14, 15, 16)), 6: {1: None},
                  17: {1: None, 2: None}}  # fmt: skip
_SHAPE: dict[int, Known | None] = {2: None, 3: None, 5: _LAYOUT, 6: None}
_SHAPE[4] = _SHAPE
_LITERAL: dict[int, Known | None] = {
    **dict.fromkeys(range(2, 37)), 1: _SHAPE,
}  # fmt: skip
_LITERAL[10] = _LITERAL
# Sizes of dynamic literals and indices of sparse ones.
del _LITERAL[14], _LITERAL[34]
_SHARDING: dict[int, Known | None] = {
    **dict.fromkeys((1, 3, 4, 6, 8, 9, 10, 11, 12, 13)), 7: _METADATA,
}  # fmt: skip
_SHARDING[5] = _SHARDING
_MAP: Known = {1: {1: None, 2: None}}
_DOT = _numbers(4)
_IOTA_GROUPS = _numbers(4)
_ORIGINAL: Known = {1: {1: None, 2: {1: None, 2: None}}, 2: None}

# HloInstructionProto.
INSTRUCTION: Known = {
    **dict.fromkeys(
        (
            *(F.NAME, F.OPCODE, F.PARAMETER_NUMBER, F.FUSION_KIND, F.TUPLE_INDEX, F.DIMENSIONS),
            *(F.EXPONENT_BITS, F.MANTISSA_BITS, F.DYNAMIC_SLICE_SIZES, F.DISTRIBUTION, F.EPSILON),
            *(F.FEATURE_INDEX, F.CHANNEL_ID, F.CUSTOM_CALL_TARGET, F.FFT_TYPE, F.FFT_LENGTH, F.ID),
            *(F.GATHER_SLICE_SIZES, F.OPERAND_IDS, F.CONTROL_PREDECESSOR_IDS, F.CALLED_IDS),
            *(F.BACKEND_CONFIG, F.FEATURE_GROUP_COUNT, F.CONSTRAIN_LAYOUT, F.BATCH_GROUP_COUNT),
            *(F.IS_STABLE, F.COMPARISON_DIRECTION, F.CUSTOM_CALL_HAS_SIDE_EFFECT, F.DELTA),
            *(F.INDICES_ARE_SORTED, F.UNIQUE_INDICES, F.RNG_ALGORITHM, F.USE_GLOBAL_DEVICE_IDS),
            *(F.COMPARISON_TYPE, F.CUSTOM_CALL_SCHEDULE, F.CUSTOM_CALL_API_VERSION, F.K),
            *(F.LARGEST, F.IS_COMPOSITE, R.OUTFEED_CONFIG, R.INFEED_CONFIG, R.IS_HOST_TRANSFER),
            *(R.PADDING_TYPE, R.ASYNC_EXECUTION_THREAD, R.CROSS_PROGRAM_PREFETCH_INDEX),
            *(R.IS_REVERSE, R.NUM_CARRIES, R.IS_ASSOCIATIVE),
        )
    ),
    F.SHAPE: _SHAPE,
    F.METADATA: _METADATA,
    F.LITERAL: _LITERAL,
    F.WINDOW: {1: _numbers(7)},
    F.CONVOLUTION: dict.fromkeys((3, 4, 6, 7, 8, 9, 10, 11, 12)),
    F.SLICES: _numbers(3),
    F.PADDING: {1: _numbers(3)},
    R.OUTFEED_SHAPE: _SHAPE,
    F.DOT: _DOT,
    R.RAGGED_DOT: {1: _DOT, 2: None, 3: None},
    F.GATHER: _numbers(6),
    F.SHARDING: _SHARDING,
    F.SCATTER: _numbers(6),
    F.REPLICA_GROUPS: {1: None},
    F.PRECISION: _numbers(2),
    F.SOURCE_TARGET_PAIRS: _numbers(2),
    R.DOMAIN_ENTRY_SHARDING: _SHARDING,
    R.DOMAIN_EXIT_SHARDING: _SHARDING,
    F.OPERAND_SHAPES_WITH_LAYOUT: _SHAPE,
    F.TRIANGULAR_SOLVE: _numbers(4),
    F.PARAMETER_REPLICATION: {1: None},
    F.CHOLESKY: {1: None},
    F.FRONTEND_ATTRIBUTES: _MAP,
    F.OUTPUT_OPERAND_ALIASING: _numbers(3),
    F.STATISTICS: {1: None, 2: {1: None, 2: None}},
    F.COLLECTIVE_DEVICE_LIST: {1: {1: None}, 2: _IOTA_GROUPS},
    F.IOTA_DEVICE_LIST: _IOTA_GROUPS,
    F.MESH_DEVICE_LIST: {
        1: {1: _numbers(2), 2: None, 3: _numbers(2)},
        2: {1: None, 2: _numbers(2)},
    },
    F.ORIGINAL_VALUE: _ORIGINAL,
    F.RESULT_ACCURACY: {1: None, 2: _numbers(3)},
}
_PROGRAM_SHAPE: Known = {1: _SHAPE, 2: _SHAPE, 3: None}
# HloComputationProto; its instructions are looked at one by one.
COMPUTATION: Known = {
    **dict.fromkeys(
        (
            *(ComputationField.NAME, ComputationField.INSTRUCTIONS, ComputationField.ID),
            *(ComputationField.ROOT_ID, ComputationField.IS_FUSION),
            ComputationField.EXECUTION_THREAD,
        )
    ),
    ComputationField.PROGRAM_SHAPE: _PROGRAM_SHAPE,
}
# HloModuleProto; so are its computations.
MODULE: Known = {
    **dict.fromkeys(
        (
            *(ModuleField.NAME, ModuleField.ENTRY_NAME, ModuleField.COMPUTATIONS, ModuleField.ID),
            *(ModuleField.ENTRY_ID, ModuleField.IS_DYNAMIC, ModuleField.AUTO_SPMD),
            # Which devices run it; XLA's own text does not have it either.
            *(ModuleField.DEVICE_ASSIGNMENT, ModuleField.PJRT_ID),
        )
    ),
    ModuleField.PROGRAM_SHAPE: _PROGRAM_SHAPE,
    ModuleField.SCHEDULE: {1: {1: None, 2: {1: None}}},
    ModuleField.ALIAS: {1: _numbers(4)},
    ModuleField.OUTPUT_SHARDING: _SHARDING,
    ModuleField.PARAMETER_SHARDINGS: _SHARDING,
    ModuleField.STACK_FRAMES: {1: None, 2: None, 3: _numbers(6), 4: _numbers(2)},
    ModuleField.DONORS: {1: _numbers(2)},
    ModuleField.FRONTEND_ATTRIBUTES: _MAP,
    ModuleField.CONFIG: {ConfigField.REPLICA_COUNT: None, ConfigField.NUM_PARTITIONS: None},
    ModuleField.TEXT_ATTRIBUTES: _MAP,
}


def unknown_field(message: Message, known: Known) -> str:
    """The path of a field that is set and not known, ``41`` or ``7.3``; empty for none."""
    for number, values in message.fields.items():
        if number not in known:
            # The default value, or an empty message, says nothing.
            if any(value if isinstance(value, int) else value[1] > value[0] for value in values):
                return str(number)
            continue
        inner = known[number]
        if inner is None:
            continue
        for value in values:
            if isinstance(value, int):
                continue
            found = _inside(bytes(message.source[value[0] : value[1]]), inner)
            if found:
                return f"{number}.{found}"
    return ""


_seen: dict[tuple[int, bytes], str] = {}
_MOST_SEEN, _LONGEST = 1 << 14, 256


def _inside(data: bytes, known: Known) -> str:
    """:func:`unknown_field` of an encoded message; short ones, which repeat, are remembered."""
    key = (id(known), data)
    found = _seen.get(key)
    if found is None:
        found = unknown_field(Message(data), known)
        if len(data) < _LONGEST and len(_seen) < _MOST_SEEN:
            _seen[key] = found
    return found


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
            f"{row.name}={shown}"
            for row in MODULE_ATTRIBUTES
            if row.name not in NOT_IN_TEXT and (shown := row.show(message))
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
