"""Reads one HLO computation into one function: dispatches instructions, resolves tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphgen.analysis.annotation_diff import CONTROL
from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Function, Loc, Op, TensorType, Value, attrs_of
from graphgen.lowering.hlo.annotations import (
    ANNOTATED,
    HINTS,
    OPCODE,
    SHARDING,
    annotations_of,
    is_bounded,
    is_plain,
    of_part,
    shape_annotation,
)
from graphgen.lowering.hlo.control_rows import has_only_trips
from graphgen.lowering.hlo.dialect import BY_NAME
from graphgen.lowering.hlo.external_rows import OPAQUE, read_opaque
from graphgen.lowering.hlo.hlo_file import HloFile, ir_name
from graphgen.lowering.hlo.op_builder import OpBuilder, Tree, leaves
from graphgen.lowering.hlo.op_row import HloInstruction, read_instruction
from graphgen.lowering.hlo.unmodelled import ContradictionError, UnmodelledError
from graphgen.lowering.hlo.written_as import WRITTEN_AS
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.proto_module import HloComputation, read_frontend_attributes
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.attributes import UNKNOWN_ATTRIBUTE
from graphgen.lowering.hlo_text.hlo_sharding import parse_sharding
from graphgen.numbers import BAD_NUMBER

_F = InstructionField
# Fields in which equal instructions differ.
_APART = frozenset((_F.NAME, _F.ID, _F.OPERAND_IDS, _F.METADATA))
# Constants with longer literals are read each for itself.
_LONGEST = 64

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RepeatedOp:
    """The one op of one result that instructions of a key become.

    Attributes:
        name, attrs, types, annotations: of the op.
        reads: positions of its operands among those of the instruction.
        idle: positions of operands that it does not need.
    """

    name: str
    attrs: Attrs
    types: tuple[TensorType, ...]
    annotations: Attrs
    reads: tuple[int, ...]
    idle: tuple[int, ...]


class RepeatedInstructions:
    """The instructions of one computation that were read, by key.

    Args:
        builder: appends their ops.
    """

    def __init__(self, builder: OpBuilder) -> None:
        self._builder = builder
        self._found: dict[Key, RepeatedOp] = {}

    def key(self, message: Message, operands: Sequence[Tree]) -> Key | None:
        """The key of an instruction; ``None`` for one that is read for itself."""
        parts: list[object] = []
        source = message.source
        for number, values in message.fields.items():
            if number in _APART:
                continue
            parts.append(number)
            for value in values:
                if isinstance(value, int):
                    parts.append(value)
                elif number == _F.LITERAL and value[1] - value[0] > _LONGEST:
                    return None
                else:
                    parts.append(source[value[0] : value[1]])
        for operand in operands:
            if not isinstance(operand, Value):
                return None
            op = operand.op
            if op is None:
                parts += (operand.type, operand.annotations)
            else:
                constant = op.attrs if op.name == "constant" else None
                parts += (operand.type, op.annotations, operand.index, constant)
        if len(operands) > 1 and len(set(operands)) < len(operands):
            parts.append(tuple([operands.index(operand) for operand in operands]))
        return tuple(parts)

    def again(self, key: Key, name: str, where: Loc, operands: Sequence[Tree]) -> Value | None:
        """Append the op of an instruction with a known key; its value, else ``None``."""
        known = self._found.get(key)
        if known is None:
            return None
        builder = self._builder
        given = [operand for operand in operands if isinstance(operand, Value)]
        reads = tuple([given[index] for index in known.reads])
        label = ir_name(name, builder.taken)
        op = Op(known.name, reads, known.types, known.attrs, where, (label,))
        op.annotations = known.annotations
        builder.function.block.append(op)
        for index in known.idle:
            builder.idle[given[index]] = None
        return op.results[0]

    def note(self, key: Key, operands: Sequence[Tree], made: Sequence[Op], tree: Tree) -> None:
        """Cache the op made of an instruction, if it is one op with one result."""
        if len(made) != 1 or tree is not made[0].results[0] or len(made[0].results) != 1:
            return
        (op,) = made
        places = {operand: index for index, operand in reversed([*enumerate(operands)])}
        if any(value not in places for value in op.operands):
            return
        reads = tuple([places[value] for value in op.operands])
        idle = [index for operand, index in places.items() if operand in self._builder.idle]
        unread = tuple([index for index in idle if index not in reads])
        types = (op.results[0].type,)
        self._found[key] = RepeatedOp(op.name, op.attrs, types, op.annotations, reads, unread)


KNOWN_FIELDS = frozenset(
    value for value in vars(InstructionField).values() if isinstance(value, int)
)
_CONTROL = InstructionField.CONTROL_PREDECESSOR_IDS
# Their result types depend on the number of ranks, which a file need not state.
_OF_UNKNOWN_RANKS = ("all-gather", "reduce-scatter", "all-to-all", "all-gather-start")
# Fields of a parameter that arguments have otherwise; it may have any other one.
_OF_PARAMETER = frozenset(
    (
        *(InstructionField.NAME, InstructionField.OPCODE, InstructionField.SHAPE),
        *(InstructionField.METADATA, InstructionField.PARAMETER_NUMBER, InstructionField.ID),
    )
)


class HloFunctionReader:
    """Reads one computation.

    Args:
        file: the file it stands in.
        computation: what to read.
        function: receives the ops; empty.

    Attributes:
        parameters: by number, the instruction and the arguments it became.
        root: the instruction whose value is the result, once all is read.
    """

    def __init__(self, file: HloFile, computation: HloComputation, function: Function) -> None:
        self.file = file
        self.computation = computation
        self.function = function
        self.builder = OpBuilder(file, function)
        self.parameters: dict[int, tuple[Message, list[Value]]] = {}
        self.repeats = RepeatedInstructions(self.builder)
        self.root: Message | None = None
        self._values: dict[int, Tree] = {}
        self._silent: dict[int, Op] = {}
        self._order: list[tuple[Op, list[Op]]] = []
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
                number = instruction.integer(InstructionField.ID)
                self._values[number] = self._read(instruction)
                if number == self.computation.root_id:
                    self.root = instruction
            except GraphgenError as error:
                place = f"%{self._name} in %{self.computation.name}"
                error.where = f"{error.where}: {place}" if error.where else place
                raise
            except BAD_NUMBER as error:
                place = f"%{self._name} in %{self.computation.name}"
                what = f"the fields of an instruction do not fit: {error}"
                raise GraphgenError("GG0801", what, where=place) from error
        root = self._values.get(self.computation.root_id)
        if root is None:
            what = f"%{self.computation.name} has no root instruction"
            raise GraphgenError("GG0801", what)
        self._arguments()
        for op, before in self._order:
            names = [f"%{item.results[0].name}" for item in before if item.block is not None]
            if names:
                noted = {CONTROL: ",".join(dict.fromkeys(names))}
                op.annotations = attrs_of({**op.annotations, **noted})
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
        ordered = instruction.has(_CONTROL)
        if ordered and code in ("tuple", "get-tuple-element"):
            self.file.drop("control dependencies of tuples")
        if code == "tuple":
            self._annotate_tuple(instruction)
            return tuple(operands)
        if code == "get-tuple-element":
            member = _member(operands, instruction.integer(InstructionField.TUPLE_INDEX))
            self._annotate_member(instruction, member, shape)
            self._rename(member)
            return member
        key = None if ordered else self.repeats.key(instruction, operands)
        if key is None:
            tree, made = self._op(code, instruction, operands, shape)
            if made and not leaves(tree):
                self._silent[instruction.integer(InstructionField.ID)] = made[-1]
            return tree
        where = self.file.locations.read(instruction)
        found = self.repeats.again(key, self._name, where, operands)
        if found is not None:
            return found
        lost = self.file.losses
        tree, made = self._op(code, instruction, operands, shape)
        if made and not leaves(tree):
            self._silent[instruction.integer(InstructionField.ID)] = made[-1]
        if self.file.losses == lost:
            self.repeats.note(key, operands, made, tree)
        return tree

    def _annotate_tuple(self, instruction: Message) -> None:
        """Keep what is noted of the root; a tuple elsewhere is made again by what reads it."""
        found = annotations_of(instruction, ANNOTATED)
        if instruction.integer(InstructionField.ID) == self.computation.root_id:
            self._annotate_function(of_part(found, "root"))
        else:
            self._count_lost(found, "tuples")

    def _annotate_member(self, instruction: Message, member: Tree, shape: HloShape) -> None:
        """Keep what is noted of an element of a tuple with the op or argument it came from."""
        found = annotations_of(instruction, ANNOTATED)
        if not found and is_plain(shape):
            return
        if not isinstance(member, Value):
            return self._count_lost(found, "tuples")
        if member.op is None:
            member.annotations = attrs_of({**found, **shape_annotation(shape)})
        elif len(member.op.results) > 1:
            noted = of_part(found, f"element{member.index}")
            member.op.annotations = attrs_of({**member.op.annotations, **noted})
        elif found:
            self._count_lost(found, "elements of tuples")
        return None

    def _count_lost(self, found: Attrs, where: str) -> None:
        for key in found:
            self.file.drop(f"{key} of {where}")

    def _annotate_function(self, more: Mapping[str, str]) -> None:
        if more:
            self.function.annotations = attrs_of({**self.function.annotations, **more})

    def _rename(self, member: Tree) -> None:
        """Name one of several results after the instruction that first takes it out of a tuple."""
        if isinstance(member, Value) and member in self.builder.unnamed:
            del self.builder.unnamed[member]
            self.builder.taken.discard(member.name or "")
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
        self._annotate_parameter(instruction, shape, made)
        if shape.is_tuple and self.file.reading:
            self.builder.unnamed.update(dict.fromkeys(made))
        self.parameters[number] = (instruction, made)
        return tree

    def _annotate_parameter(self, i: Message, shape: HloShape, made: Sequence[Value]) -> None:
        if i.has(_CONTROL):
            # Parameters are written first, and there is nothing before them.
            self.file.drop("control dependencies of parameters")
        found = annotations_of(i, i.fields.keys() - _OF_PARAMETER - {_CONTROL})
        for value, leaf in zip(made, shape.leaves, strict=True):
            value.annotations = attrs_of(shape_annotation(leaf))
        if not shape.is_tuple:
            (value,) = made
            value.annotations = attrs_of({**found, **value.annotations})
        elif self.file.reading:
            self._annotate_function(of_part(found, "parameter"))
        else:
            self._share(found, made)

    def _share(self, found: Attrs, made: Sequence[Value]) -> None:
        """Give each argument its part of the sharding of a tuple, which a program does not take."""
        for key, text in found.items():
            members = parse_sharding(str(text)).members if key == SHARDING else ()
            if len(members) == len(made):
                for value, part in zip(made, members, strict=True):
                    value.annotations = attrs_of({**value.annotations, SHARDING: part.text})
            else:
                self.file.drop(f"{key} of tuples")

    def _argument_tree(self, shape: HloShape, name: str, made: list[Value]) -> Tree:
        """An argument for each array in the shape; ``made`` gets them."""
        if shape.is_tuple:
            parts = enumerate(shape.members)
            return tuple([self._argument_tree(part, f"{name}.{i}", made) for i, part in parts])
        value = self.function.block.add_arg(shape.type, ir_name(name, self.builder.taken))
        made.append(value)
        return value

    def _op(
        self, code: str, message: Message, operands: list[Tree], shape: HloShape
    ) -> tuple[Tree, list[Op]]:
        """Append the ops of an instruction; its value, and the ops."""
        block = self.function.block
        before = block.last
        self.builder.begin(self._name, self.file.locations.read(message))
        instruction = HloInstruction(self.builder, message, operands, shape)
        # Nothing of a custom call is left out: it is kept as it is.
        whole = code == "custom-call"
        try:
            if not whole:
                _check_fields(message)
                _check_sizes(operands, shape)
            tree = _read_row(code, instruction)
            _check(tree, shape)
        except UnmodelledError as reason:
            while block.last is not None and block.last is not before:
                self.builder.forget(block.last)
                block.erase(block.last)
            tree, whole = self._opaque(code, instruction, str(reason)), True
            if isinstance(reason, ContradictionError) and code not in _OF_UNKNOWN_RANKS:
                self.file.contradictions.append(f"%{self._name}: {code}: {reason}")
        made = [*_from(block.first if before is None else before.next)]
        self._annotate(instruction, tree, made, whole=whole)
        return tree, made

    def _annotate(self, i: HloInstruction, tree: Tree, made: Sequence[Op], *, whole: bool) -> None:
        """Note with the ops of an instruction what they do not model of it."""
        fields = HINTS if whole else ANNOTATED
        if not whole and has_only_trips(i.message):
            fields = fields - {InstructionField.BACKEND_CONFIG}
        found = annotations_of(i.message, fields)
        before = [self._ops_of(n) for n in i.message.integers(_CONTROL)]
        if not made:
            if before:
                self.file.drop("control dependencies of copies")
            return self._count_lost(found, "copies")
        if before:
            # Several results get their names later.
            self._order.append((made[-1], [op for ops in before for op in ops]))
        code = i.message.text(InstructionField.OPCODE)
        one = not whole and len(made) == 1
        renamed = {OPCODE: code} if one and code in WRITTEN_AS else {}
        given = leaves(tree)
        if not given:
            made[-1].annotations = attrs_of(found)
        several = len({value.op for value in given}) > 1
        for value, leaf in zip(given, i.shape.leaves, strict=True):
            if value.op in made and value.op is not None and (several or value is given[0]):
                stated = shape_annotation(leaf if several else i.shape)
                value.op.annotations = attrs_of({**found, **renamed, **stated})
        return None

    def _ops_of(self, number: int) -> list[Op]:
        """Ops that give the value of an instruction, arguments left out."""
        if number in self._silent:
            return [self._silent[number]]
        return [value.op for value in leaves(self._operand(number)) if value.op is not None]

    def _opaque(self, code: str, instruction: HloInstruction, reason: str) -> Tree:
        begun = [value for value in leaves(tuple(instruction.operands)) if value.op is not None]
        if code.endswith(("-done", "-update")) and not begun and self.file.reading:
            # XLA wants the whole tuple of what began it, which a function here takes apart.
            raise GraphgenError("GG0103", f"{code} ends what its caller began")
        try:
            tree = read_opaque(OPAQUE, instruction)
        except UnmodelledError as other:
            raise GraphgenError("GG0103", f"{code} is not modelled here: {other}") from other
        self.file.keep(f"{code}: {reason}")
        return tree


def read_values(file: HloFile, computation: HloComputation, function: Function) -> list[Value]:
    """Read a computation into an empty function; the arrays that its root gives."""
    return HloFunctionReader(file, computation, function).read()


def _read_row(code: str, i: HloInstruction) -> Tree:
    row = BY_NAME.get(code)
    if row is not None:
        return read_instruction(row, i)
    flat = all(isinstance(operand, Value) for operand in i.operands)
    raise UnmodelledError("it has no op in the IR" if flat else "it reads a tuple")


def _from(first: Op | None) -> Iterator[Op]:
    """An op and those after it."""
    while first is not None:
        yield first
        first = first.next


def _check_sizes(operands: Sequence[Tree], shape: HloShape) -> None:
    """Refuse bounded sizes: ops of the IR compute with all of an array."""
    if any(leaf.dynamic for leaf in shape.leaves) or any(
        is_bounded(value) for operand in operands for value in leaves(operand)
    ):
        raise UnmodelledError("it has bounded sizes")


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
    for number in sorted(instruction.fields):
        if number not in KNOWN_FIELDS and instruction.is_set(number):
            raise UnmodelledError(f"its field {number} is unknown")
    for key in read_frontend_attributes(instruction, InstructionField.FRONTEND_ATTRIBUTES):
        if key.startswith(UNKNOWN_ATTRIBUTE):
            raise UnmodelledError(f"its attribute {key[len(UNKNOWN_ATTRIBUTE) :]} is unknown")
