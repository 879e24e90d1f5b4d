"""Reads one HLO computation into one function: dispatches instructions, resolves tuples."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Value
from graphgen.lowering.hlo.dialect import BY_NAME
from graphgen.lowering.hlo.dialect.control_rows import has_only_trips
from graphgen.lowering.hlo.dialect.external_rows import OPAQUE, read_opaque
from graphgen.lowering.hlo.dialect.hlo_file import HloFile, ir_name
from graphgen.lowering.hlo.dialect.op_builder import OpBuilder, Tree, leaves
from graphgen.lowering.hlo.dialect.op_row import HloInstruction, read_instruction
from graphgen.lowering.hlo.dialect.unmodelled import ContradictionError, UnmodelledError
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.instruction import INPUT_NAMES, OUTPUT_NAMES
from graphgen.lowering.hlo.proto.proto_module import HloComputation, read_frontend_attributes
from graphgen.lowering.hlo.proto.shape import HloShape, read_shape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.text.attributes import UNKNOWN_ATTRIBUTE

# Fields that change no number, which ops of the IR do not carry.
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

# Fields that even an instruction kept whole does not keep.
NEVER_KEPT = (InstructionField.CONTROL_PREDECESSOR_IDS,)
KNOWN_FIELDS = frozenset(
    value for value in vars(InstructionField).values() if isinstance(value, int)
)


class HloFunctionReader:
    """Reads one computation.

    Args:
        file: the file it stands in.
        computation: what to read.
        function: receives the ops; empty.

    Attributes:
        parameters: by number, the instruction and the arguments it became.
    """

    def __init__(self, file: HloFile, computation: HloComputation, function: Function) -> None:
        self.file = file
        self.computation = computation
        self.function = function
        self.builder = OpBuilder(file, function)
        self.parameters: dict[int, tuple[Message, list[Value]]] = {}
        self._values: dict[int, Tree] = {}
        self._name = ""

    def read(self) -> list[Value]:
        """Read it all; the arrays that the root gives.

        Raises:
            GraphgenError: GG0801 a damaged file, GG0202 an undefined operand, GG0103 an
                instruction that is not modelled, each with its name.
        """
        for instruction in self.computation.instructions():
            try:
                self._name = instruction.text(InstructionField.NAME)
                self._values[instruction.integer(InstructionField.ID)] = self._read(instruction)
            except GraphgenError as error:
                place = f"%{self._name} in %{self.computation.name}"
                error.where = f"{error.where}: {place}" if error.where else place
                raise
        root = self._values.get(self.computation.root_id)
        if root is None:
            what = f"%{self.computation.name} has no root instruction"
            raise GraphgenError("GG0801", what)
        self._arguments()
        given = leaves(root)
        for value in self.builder.idle:
            op = value.op
            if op is not None and op.block and not value.users and value not in set(given):
                self.function.block.erase(op)
        return given

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
        """Name one of several results after the instruction that first takes it out of a tuple."""
        if isinstance(member, Value) and member in self.builder.unnamed:
            del self.builder.unnamed[member]
            member.name = ir_name(self._name, self.builder.taken)

    def _operand(self, number: int) -> Tree:
        found = self._values.get(number)
        if found is None:
            raise GraphgenError("GG0202", f"operand {number} is not defined before it is read")
        return found

    def _parameter(self, instruction: Message, shape: HloShape) -> Tree:
        number = instruction.integer(InstructionField.PARAMETER_NUMBER)
        if number in self.parameters:
            raise GraphgenError("GG0801", f"there are two parameters {number}")
        made: list[Value] = []
        tree = self._argument_tree(shape, self._name, made)
        if shape.is_tuple and self.file.reading:
            self.builder.unnamed.update(dict.fromkeys(made))
        self.parameters[number] = (instruction, made)
        return tree

    def _argument_tree(self, shape: HloShape, name: str, made: list[Value]) -> Tree:
        """An argument for each array in the shape; ``made`` gets them."""
        if shape.is_tuple:
            parts = enumerate(shape.members)
            return tuple([self._argument_tree(part, f"{name}.{i}", made) for i, part in parts])
        value = self.function.block.add_arg(shape.type, ir_name(name, self.builder.taken))
        made.append(value)
        return value

    def _op(self, code: str, message: Message, operands: list[Tree], shape: HloShape) -> Tree:
        block = self.function.block
        before = block.last
        self.builder.begin(self._name, self.file.locations.read(message))
        instruction = HloInstruction(self.builder, message, operands, shape)
        # Nothing of a custom call is left out: it is kept as it is.
        whole = code == "custom-call"
        try:
            if not whole:
                _check_fields(message)
            tree = _read_row(code, instruction)
            _check(tree, shape)
        except ContradictionError as reason:
            raise GraphgenError("GG0103", f"{code} is not modelled here: {reason}") from reason
        except UnmodelledError as reason:
            while block.last is not None and block.last is not before:
                block.erase(block.last)
            tree, whole = self._opaque(code, instruction, str(reason)), True
        self._count_dropped(message, shape, whole=whole)
        return tree

    def _opaque(self, code: str, instruction: HloInstruction, reason: str) -> Tree:
        try:
            tree = read_opaque(OPAQUE, instruction)
        except UnmodelledError as other:
            raise GraphgenError("GG0103", f"{code} is not modelled here: {other}") from other
        self.file.keep(f"{code}: {reason}")
        return tree

    def _count_dropped(self, instruction: Message, shape: HloShape, *, whole: bool) -> None:
        """Count the fields left out; an instruction kept ``whole`` keeps nearly all."""
        dropped = {key: what for key, what in DROPPED.items() if not whole or key in NEVER_KEPT}
        for number, what in dropped.items():
            if number == InstructionField.BACKEND_CONFIG and has_only_trips(instruction):
                continue
            if number in instruction.fields and _is_set(instruction, number):
                self.file.drop(what)
        attributes = read_frontend_attributes(instruction, InstructionField.FRONTEND_ATTRIBUTES)
        if not whole and attributes.keys() - {INPUT_NAMES, OUTPUT_NAMES}:
            self.file.drop("frontend attributes")
        if any(not leaf.in_order for leaf in shape.leaves):
            self.file.drop("layouts")


def read_values(file: HloFile, computation: HloComputation, function: Function) -> list[Value]:
    """Read a computation into an empty function; the arrays that its root gives."""
    return HloFunctionReader(file, computation, function).read()


def _read_row(code: str, i: HloInstruction) -> Tree:
    row = BY_NAME.get(code)
    if row is not None:
        return read_instruction(row, i)
    flat = all(isinstance(operand, Value) for operand in i.operands)
    raise UnmodelledError("it has no op in the IR" if flat else "it reads a tuple")


def _member(operands: Sequence[Tree], index: int) -> Tree:
    whole = operands[0] if operands else ()
    if isinstance(whole, Value) or not 0 <= index < len(whole):
        raise GraphgenError("GG0801", f"there is no element {index} in what it reads")
    return whole[index]


def _check(tree: Tree, shape: HloShape) -> None:
    """Compare what an instruction gives with what it states."""
    given = [value.type for value in leaves(tree)]
    if given != [leaf.type for leaf in shape.leaves]:
        shown = ", ".join([type_.text for type_ in given])
        raise ContradictionError(f"it states {shape.text}, but its operands give {shown}")


def _check_fields(instruction: Message) -> None:
    """Refuse unknown fields: what they change is not known."""
    for number in instruction.fields:
        if number not in KNOWN_FIELDS and _is_set(instruction, number):
            raise UnmodelledError(f"its field {number} is unknown")
    for key in read_frontend_attributes(instruction, InstructionField.FRONTEND_ATTRIBUTES):
        if key.startswith(UNKNOWN_ATTRIBUTE):
            raise UnmodelledError(f"its attribute {key[len(UNKNOWN_ATTRIBUTE) :]} is unknown")


def _is_set(instruction: Message, number: int) -> bool:
    """The field holds more than the default written out."""
    value = instruction.fields[number][-1]
    if isinstance(value, int):
        return value != 0
    if number == InstructionField.PRECISION:
        precision = Message(instruction.source, *value)
        return any(any(precision.integers(inner)) for inner in precision.fields)
    return value[1] > value[0]
