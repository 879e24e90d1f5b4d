"""One HLO computation as a function: instructions to ops, tuples to values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Function, Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.ir.names import claim_name
from graphgen.lowering.hlo.comparator import direction_of
from graphgen.lowering.hlo.computation_emitter import INPUT_NAMES, OUTPUT_NAMES
from graphgen.lowering.hlo.dialect.hlo_locations import HloLocations
from graphgen.lowering.hlo.dialect.subcomputations import pack
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.proto_module import HloComputation, HloModule, frontend_attributes
from graphgen.lowering.hlo.proto.shape import HloShape, read_shape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.read_control import (
    CODES,
    ContradictionError,
    leaves,
    read_control,
    says_only_trips,
)
from graphgen.lowering.hlo.read_opaque import read_custom_call, read_opaque
from graphgen.lowering.hlo.read_ops import READ, To, Tree, UnmodelledError
from graphgen.lowering.hlo.text.attributes import UNKNOWN_ATTRIBUTE
from graphgen.ops import InferError, infer, make_attrs
from graphgen.text.grammar import NAME

_NAME = re.compile(NAME)
# What an instruction may say that our ops do not carry, and changes no number.
DROPPED = {
    InstructionField.CONTROL_PREDECESSOR_IDS: "control dependencies",
    InstructionField.CHANNEL_ID: "channel ids",
    InstructionField.SHARDING: "shardings",
    InstructionField.BACKEND_CONFIG: "backend configurations",
    InstructionField.PRECISION: "precisions",
    InstructionField.INDICES_ARE_SORTED: "promises of sorted indices",
    InstructionField.UNIQUE_INDICES: "promises of unique indices",
    InstructionField.ORIGINAL_VALUE: "original values",
    InstructionField.RESULT_ACCURACY: "accuracies",
}

# Of these not even an instruction that is kept whole keeps anything.
# Calls inside of calls.
MOST_CALLS = 100
NEVER_KEPT = (InstructionField.CONTROL_PREDECESSOR_IDS,)
KNOWN_FIELDS = frozenset(
    value for value in vars(InstructionField).values() if isinstance(value, int)
)


@dataclass(slots=True)
class HloFile:
    """What the computations of one file share.

    Attributes:
        module: the file.
        locations: reads metadata.
        by_id: the computations.
        dropped: how often what was left out.
        bodies: what the reductions' computations do, as far as known.
        opaque: how often what was not modelled.
        regions: computations, packed, that opaque instructions call.
        functions: those that calls run, callees first.
        names: of functions.
        reading: the computations that are being read, each called by the one before.
    """

    module: HloModule
    locations: HloLocations
    by_id: dict[int, HloComputation]
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    bodies: dict[int, str] = field(default_factory=dict[int, str])
    opaque: dict[str, int] = field(default_factory=dict[str, int])
    regions: dict[int, str] = field(default_factory=dict[int, str])
    functions: dict[int, Function] = field(default_factory=dict[int, Function])
    names: set[str] = field(default_factory=set[str])
    reading: list[int] = field(default_factory=list[int])

    def drop(self, what: str) -> None:
        """Count something left out."""
        self.dropped[what] = self.dropped.get(what, 0) + 1

    def function(self, number: int) -> Function:
        """A computation that is called, as a function; read when it is first asked for."""
        found = self.functions.get(number)
        if found is None:
            computation = self.by_id.get(number)
            if computation is None:
                raise GraphgenError("GG0202", f"it calls computation {number}, which is not there")
            if number in self.reading or len(self.reading) > MOST_CALLS:
                raise GraphgenError("GG0801", f"%{computation.name} calls itself, or nearly so")
            self.reading.append(number)
            made = Function(free_name(computation.name or "called", self.names))
            given = leaves(HloFunctionReader(self, computation, made).read())
            made.outputs = [(str(index), value) for index, value in enumerate(given)]
            self.reading.pop()
            found = self.functions[number] = made
        return found

    def body(self, number: int) -> Function:
        """A computation of a loop or a choice, as a function.

        Raises:
            UnmodelledError: it cannot be read; nothing of it is left.
        """
        before = [dict(counts) for counts in (self.dropped, self.opaque)]
        functions, names, depth = dict(self.functions), set(self.names), len(self.reading)
        try:
            return self.function(number)
        except GraphgenError as error:
            self.dropped, self.opaque = before
            self.functions, self.names = functions, names
            del self.reading[depth:]
            where = f"{error.where}: " if error.where else ""
            raise UnmodelledError(f"{where}{error.what}") from error

    def keep(self, what: str) -> None:
        """Count an instruction that is kept as it is."""
        self.opaque[what] = self.opaque.get(what, 0) + 1


def free_name(wanted: str, taken: set[str]) -> str:
    """``wanted`` in letters the IR takes, with a number where it is taken; taken from now on."""
    if not _NAME.fullmatch(wanted):
        wanted = re.sub(r"[^\w.$\-]", "_", wanted)
        wanted = wanted if _NAME.fullmatch(wanted) else f"_{wanted}"
    if wanted.isdigit():
        wanted = f"_{wanted}"
    return claim_name(wanted, taken)


class HloFunctionReader:
    """Reads one computation into one function.

    Args:
        file: the file it stands in.
        computation: what to read.
        function: where to; empty.
    """

    def __init__(self, file: HloFile, computation: HloComputation, function: Function) -> None:
        self.file = file
        self.computation = computation
        self.function = function
        self.values: dict[int, Tree] = {}
        self.taken: set[str] = set()
        self.parameters: dict[int, tuple[Message, list[Value]]] = {}
        self._name = ""
        self._part = ""
        self._loc = UNKNOWN
        self._idle: dict[Value, None] = {}
        self._unnamed: dict[Value, None] = {}

    def read(self) -> Tree:
        """Read it all; what the root gives.

        Raises:
            GraphgenError: GG0801 a damaged file, GG0202 an undefined operand, GG0103 an
                instruction that is not modelled, each with its name.
        """
        for instruction in self.computation.instructions():
            try:
                self._name = instruction.text(InstructionField.NAME)
                self.values[instruction.integer(InstructionField.ID)] = self._read(instruction)
            except GraphgenError as error:
                place = f"%{self._name} in %{self.computation.name}"
                error.where = f"{error.where}: {place}" if error.where else place
                raise
        root = self.values.get(self.computation.root_id)
        if root is None:
            what = f"%{self.computation.name} has no root instruction"
            raise GraphgenError("GG0801", what)
        self._arguments()
        kept = set(leaves(root))
        for value in self._idle:
            op = value.op
            if op is not None and op.block and not value.users and value not in kept:
                self.function.block.erase(op)
        return root

    def _arguments(self) -> None:
        """Put the arguments in the order of their numbers, which must be complete."""
        if sorted(self.parameters) != list(range(len(self.parameters))):
            what = f"parameters {sorted(self.parameters)} are not numbered from 0"
            raise GraphgenError("GG0801", what, where=f"%{self.computation.name}")
        ordered = [self.parameters[number][1] for number in range(len(self.parameters))]
        self.function.block.keep_args([value for values in ordered for value in values])

    def _read(self, instruction: Message) -> Tree:
        code = instruction.text(InstructionField.OPCODE)
        shape = read_shape(instruction.data(InstructionField.SHAPE))
        if code == "parameter":
            return self._parameter(instruction, shape)
        operands = [self._operand(i) for i in instruction.integers(InstructionField.OPERAND_IDS)]
        if code == "tuple":
            return tuple(operands)
        if code == "get-tuple-element":
            member = _member(operands, instruction.integer(InstructionField.TUPLE_INDEX))
            self._rename(member)
            return member
        if any(leaf.dynamic for leaf in shape.leaves):
            what = f"{shape.text} has a dynamic dimension, which is not modelled"
            raise GraphgenError("GG0103", what)
        return self._op(code, instruction, operands, shape)

    def _rename(self, member: Tree) -> None:
        """One of several results is called as what first takes it out of their tuple."""
        if isinstance(member, Value) and member in self._unnamed:
            del self._unnamed[member]
            member.name = free_name(self._name, self.taken)

    def _operand(self, number: int) -> Tree:
        found = self.values.get(number)
        if found is None:
            raise GraphgenError("GG0202", f"operand {number} is not defined before it is read")
        return found

    def _parameter(self, instruction: Message, shape: HloShape) -> Tree:
        number = instruction.integer(InstructionField.PARAMETER_NUMBER)
        if number in self.parameters:
            raise GraphgenError("GG0801", f"there are two parameters {number}")
        made: list[Value] = []
        tree = self._leaves_of(shape, self._name, made)
        if shape.is_tuple and self.file.reading:
            self._unnamed.update(dict.fromkeys(made))
        self.parameters[number] = (instruction, made)
        return tree

    def _leaves_of(self, shape: HloShape, name: str, made: list[Value]) -> Tree:
        """An argument for each array in the shape."""
        if shape.is_tuple:
            parts = enumerate(shape.members)
            return tuple([self._leaves_of(part, f"{name}.{i}", made) for i, part in parts])
        value = self.function.block.add_arg(shape.type, free_name(name, self.taken))
        made.append(value)
        return value

    def _notes(self, instruction: Message, shape: HloShape, *, whole: bool) -> None:
        """Count what is left out; of what is kept ``whole`` that is little."""
        dropped = {key: what for key, what in DROPPED.items() if not whole or key in NEVER_KEPT}
        for number, what in dropped.items():
            if number == InstructionField.BACKEND_CONFIG and says_only_trips(instruction):
                continue
            if number in instruction.fields and _says_something(instruction, number):
                self.file.drop(what)
        attributes = frontend_attributes(instruction, InstructionField.FRONTEND_ATTRIBUTES)
        if not whole and attributes.keys() - {INPUT_NAMES, OUTPUT_NAMES}:
            self.file.drop("frontend attributes")
        if any(not leaf.in_order for leaf in shape.leaves):
            self.file.drop("layouts")

    def _op(self, code: str, instruction: Message, operands: list[Tree], shape: HloShape) -> Tree:
        block = self.function.block
        before = block.last
        self._loc = self.file.locations.read(instruction)
        self._part = ""
        try:
            if code == "custom-call":
                tree = read_custom_call(self, instruction, operands, shape)
            elif code in CODES:
                _check_fields(instruction)
                tree = read_control(self, self.file, code, instruction, operands, shape)
                _check(tree, shape)
            else:
                _check_fields(instruction)
                read = READ.get(code, _no_op)
                tree = read(self, instruction, _plain_values(operands), shape)
                _check(tree, shape)
            whole = code == "custom-call"
        except ContradictionError as reason:
            raise GraphgenError("GG0103", f"{code} is not modelled here: {reason}") from reason
        except UnmodelledError as reason:
            while block.last is not None and block.last is not before:
                block.erase(block.last)
            tree, whole = self._opaque(code, instruction, operands, shape, str(reason)), True
        self._notes(instruction, shape, whole=whole)
        return tree

    def _opaque(
        self, code: str, instruction: Message, operands: list[Tree], shape: HloShape, reason: str
    ) -> Tree:
        try:
            tree = read_opaque(self, instruction, operands, shape)
        except UnmodelledError as other:
            raise GraphgenError("GG0103", f"{code} is not modelled here: {other}") from other
        self.file.keep(f"{code}: {reason}")
        return tree

    def emit_stated(
        self, name: str, operands: Sequence[Value], shape: HloShape, **attrs: AttrValue
    ) -> Sequence[Value]:
        """See :class:`~graphgen.lowering.hlo.read_opaque.To`."""
        types = tuple([leaf.type for leaf in shape.leaves])
        try:
            checked = make_attrs(name, {**attrs, "results": types})
            types = infer(name, tuple([value.type for value in operands]), checked)
        except InferError as error:
            raise UnmodelledError(str(error)) from error
        single = not shape.is_tuple
        labels = [self._name if single else f"{self._name}.{i}" for i in range(len(types))]
        names = [free_name(label, self.taken) for label in labels]
        op = Op(name, tuple(operands), types, checked, self._loc, names)
        self.function.block.append(op)
        if not single:
            self._unnamed.update(dict.fromkeys(op.results))
        return op.results

    def region(self, called: int) -> str:
        """See :class:`~graphgen.lowering.hlo.read_opaque.To`."""
        found = self.file.regions.get(called)
        if found is None:
            found = self.file.regions[called] = pack(called, self.file.by_id)
        return found

    def emit(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """Append an op of one result; see :class:`~graphgen.lowering.hlo.read_ops.To`."""
        return self.emit_all(name, operands, **attrs)[0]

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op; see :class:`~graphgen.lowering.hlo.read_ops.To`."""
        try:
            checked = make_attrs(name, attrs)
            types = infer(name, tuple([value.type for value in operands]), checked)
        except InferError as error:
            raise ContradictionError(str(error)) from error
        except GraphgenError as error:
            raise UnmodelledError(error.what) from error
        label = f"{self._name}.{self._part}" if self._part else self._name
        self._part = ""
        single = len(types) == 1
        labels = [label if single else f"{label}.{i}" for i in range(len(types))]
        names = [free_name(each, self.taken) for each in labels]
        op = Op(name, tuple(operands), types, checked, self._loc, names)
        self.function.block.append(op)
        if not single:
            self._unnamed.update(dict.fromkeys(op.results))
        return op.results

    def direction(self, instruction: Message, *, floats: bool) -> str:
        """See :class:`~graphgen.lowering.hlo.read_ops.To`."""
        called = instruction.integers(InstructionField.CALLED_IDS)
        found = [self.file.by_id[number] for number in called if number in self.file.by_id]
        direction = direction_of(found[0], floats=floats) if len(found) == 1 else ""
        if not direction:
            raise UnmodelledError("its comparator is more than LT or GT in total order")
        return direction

    def part(self, what: str) -> None:
        """See :class:`~graphgen.lowering.hlo.read_ops.To`."""
        self._part = what

    def idle(self, value: Value) -> None:
        """See :class:`~graphgen.lowering.hlo.read_ops.To`."""
        self._idle[value] = None

    def body(self, instruction: Message) -> str:
        """See :class:`~graphgen.lowering.hlo.read_ops.To`."""
        called = instruction.integers(InstructionField.CALLED_IDS)
        if len(called) != 1:
            raise UnmodelledError(f"it calls {len(called)} computations")
        number = called[0]
        found = self.file.bodies.get(number)
        if found is None:
            computation = self.file.by_id.get(number)
            if computation is None:
                raise GraphgenError("GG0202", f"it calls computation {number}, which is not there")
            found = self.file.bodies[number] = reducer_of(computation)
        return found


def _no_op(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    raise UnmodelledError("it has no op in the IR")


def _plain_values(operands: Sequence[Tree]) -> list[Value]:
    if any(isinstance(operand, tuple) for operand in operands):
        raise UnmodelledError("it reads a tuple")
    return [operand for operand in operands if isinstance(operand, Value)]


def _member(operands: Sequence[Tree], index: int) -> Tree:
    whole = operands[0] if operands else ()
    if isinstance(whole, Value) or not 0 <= index < len(whole):
        raise GraphgenError("GG0801", f"there is no element {index} in what it reads")
    return whole[index]


def _check(tree: Tree, shape: HloShape) -> None:
    """The instruction gives what it states."""
    given = [value.type for value in leaves(tree)]
    if given != [leaf.type for leaf in shape.leaves]:
        shown = ", ".join([type_.text for type_ in given])
        raise ContradictionError(f"it states {shape.text}, but its operands give {shown}")


def _check_fields(instruction: Message) -> None:
    """Nobody can know what an unknown field changes."""
    for number in instruction.fields:
        if number not in KNOWN_FIELDS and _says_something(instruction, number):
            raise UnmodelledError(f"its field {number} is unknown")
    for key in frontend_attributes(instruction, InstructionField.FRONTEND_ATTRIBUTES):
        if key.startswith(UNKNOWN_ATTRIBUTE):
            raise UnmodelledError(f"its attribute {key[len(UNKNOWN_ATTRIBUTE) :]} is unknown")


def _says_something(instruction: Message, number: int) -> bool:
    """Whether the field is more than the default written out."""
    value = instruction.fields[number][-1]
    if isinstance(value, int):
        return value != 0
    if number == InstructionField.PRECISION:
        precision = Message(instruction.source, *value)
        return any(any(precision.integers(inner)) for inner in precision.fields)
    return value[1] > value[0]


def reducer_of(computation: HloComputation) -> str:
    """What a computation of two scalars does: one opcode on both, or ``assign`` of the second."""
    found = {item.integer(InstructionField.ID): item for item in computation.instructions()}
    codes = {number: item.text(InstructionField.OPCODE) for number, item in found.items()}

    def source(number: int) -> int:
        """The instruction behind copies."""
        for _ in codes:
            if codes.get(number) != "copy":
                break
            number = next(iter(found[number].integers(InstructionField.OPERAND_IDS)), 0)
        return number

    numbers = {
        number: item.integer(InstructionField.PARAMETER_NUMBER)
        for number, item in found.items()
        if codes[number] == "parameter"
    }
    root = source(computation.root_id)
    if sorted(numbers.values()) == [0, 1] and root in found:
        if numbers.get(root) == 1:
            return "assign"
        read = [numbers.get(source(i)) for i in found[root].integers(InstructionField.OPERAND_IDS)]
        shapes = {item.data(InstructionField.SHAPE) for item in found.values()}
        if sorted(map(str, read)) == ["0", "1"] and len(shapes) == 1:
            return codes[root]
    raise UnmodelledError(f"%{computation.name} is more than one op on two scalars")
