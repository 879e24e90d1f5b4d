"""Rows of the HLO dialect: one op of the IR, one opcode, the attributes that both have.

:func:`write_op` and :func:`read_instruction` work from a row alone; a row has functions of its own
where the two sides differ in more than attributes, or where old files have another form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.ir import AttrValue, Op, Value
from graphgen.ir.dtype import common_type
from graphgen.lowering.codec import OpCodec
from graphgen.lowering.hlo.instruction_template import (
    Called,
    InstructionTemplate,
    Operand,
    Reducer,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.op_builder import OpBuilder, Tree
from graphgen.lowering.hlo.unmodelled import ContradictionError, UnmodelledError
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of, tuple_of
from graphgen.lowering.hlo_proto.wire import Message, delimited, integer
from graphgen.lowering.hlo_text.attributes import HloAttribute, attribute_named
from graphgen.ops import OPS
from graphgen.ops.control import scalar_signature

# (row, op) -> the instructions of the op.
WriteOp = Callable[["HloRow", Op], InstructionTemplate]
# (row, instruction) -> its value.
ReadInstruction = Callable[["HloRow", "HloInstruction"], Tree]


@dataclass(frozen=True, slots=True)
class HloInstruction:
    """One instruction being read.

    Attributes:
        to: receives its ops.
        message: its HloInstructionProto.
        operands: their values.
        shape: of its result, as stated.
    """

    to: OpBuilder
    message: Message
    operands: Sequence[Tree]
    shape: HloShape

    @property
    def values(self) -> list[Value]:
        """The operands, none of which may be a tuple (``UnmodelledError``)."""
        if any(isinstance(operand, tuple) for operand in self.operands):
            raise UnmodelledError("it reads a tuple")
        return [operand for operand in self.operands if isinstance(operand, Value)]

    @property
    def called(self) -> tuple[int, ...]:
        """Ids of the computations it calls."""
        return self.message.integers(InstructionField.CALLED_IDS)

    def applied(self, op: str, operands: Sequence[Value], **attrs: AttrValue) -> Tree:
        """Append an op that applies the one computation called, a function of scalars.

        Raises:
            UnmodelledError: it calls none or several, or one that cannot be read.
            ContradictionError: the computation does not fit.
        """
        if len(self.called) != 1:
            raise UnmodelledError(f"it calls {len(self.called)} computations")
        function = self.to.file.body(self.called[0])
        made = self.to.emit_all(op, operands, **attrs, to_apply=function.name)
        assert made[0].op is not None
        takes, gives = scalar_signature(made[0].op)
        given = [value.type for value in function.args]
        returned = [value.type for _, value in function.outputs]
        if (takes, gives) != (given, returned):
            raise ContradictionError(f"it does not fit %{function.name}")
        return tuple(made) if self.shape.is_tuple else made[0]


@dataclass(frozen=True, slots=True)
class HloField:
    """One attribute of an op.

    Attributes:
        attr: its name in the IR.
        attribute: the field of the instruction.
        read: instruction -> the IR's value.
    """

    attr: str
    attribute: HloAttribute
    read: Callable[[Message], AttrValue]


@dataclass(frozen=True, slots=True)
class HloRow(OpCodec[HloField, WriteOp, ReadInstruction]):
    """One op; ``op``, ``name``, ``fields``, ``emit`` and ``read`` as in every dialect.

    Attributes:
        inferred: attributes of the IR's op in the stated shape: ``dtype``, ``shape``.
        reduces: it calls a reducer, the attribute ``kind`` of the IR's op.
    """

    inferred: tuple[str, ...] = ()
    reduces: bool = False


def attribute(name: str, code: str = "") -> HloAttribute:
    """The attribute of an opcode (``ValueError``)."""
    found = attribute_named(name, code)
    if found is None:
        raise ValueError(f"HLO has no attribute '{name}'")
    return found


def renamed(attr: str, name: str) -> HloField:
    """The IR's ``attr``, which HLO calls ``name``."""
    found = attribute(name)
    return HloField(attr, found, found.decode)


def row(
    op: str,
    *fields: str | HloField,
    name: str | None = None,
    inferred: tuple[str, ...] = (),
    reduces: bool = False,
    emit: WriteOp | None = None,
    read: ReadInstruction | None = None,
) -> HloRow:
    """A row.

    Args:
        op: the IR's op.
        fields: attributes by name where both sides have the same, in the order they are read.
        name: the opcode; HLO's spelling of ``op`` by default, empty for an op that is not read.
        inferred: see :class:`HloRow`, as for the others.
    """
    code = opcode(op) if name is None else name
    resolved = [
        HloField(item, (found := attribute(item, code)), found.decode)
        if isinstance(item, str)
        else item
        for item in fields
    ]
    return HloRow(op, code, tuple(resolved), emit, read, inferred, reduces)


def opcode(name: str) -> str:
    """HLO's spelling of an op's name."""
    return name.replace("_", "-")


def write_op(row: HloRow, op: Op) -> InstructionTemplate:
    """The instructions of an op."""
    return row.emit(row, op) if row.emit is not None else write_fields(row, op)


def write_fields(
    row: HloRow,
    op: Op,
    more: bytes = b"",
    calls: tuple[Called, ...] = (),
    operands: tuple[Operand, ...] | None = None,
) -> InstructionTemplate:
    """The one instruction of an op, with the fields of its row.

    Args:
        row: of the op.
        op: the op.
        more: fields after the row's, encoded.
        calls: the computations it calls; a row that reduces adds its own.
        operands: what it reads, if not the op's operands.
    """
    parts: dict[int, bytes] = {}
    messages: set[int] = set()
    for item in row.fields:
        number = item.attribute.field
        parts[number] = parts.get(number, b"") + item.attribute.encode(op.attrs[item.attr])
        messages |= {number} if item.attribute.inside else set()
    encoded = {
        number: delimited(number, parts[number]) if number in messages else parts[number]
        for number in sorted(parts)
    }
    before = b"".join([data for number, data in encoded.items() if number < InstructionField.ID])
    after = b"".join([data for number, data in encoded.items() if number > InstructionField.ID])
    if row.reduces:
        calls = (*calls, Reducer(op.attrs.text("kind"), op.operands[0].dtype))
    return stated(op, row.name, before, after + more, calls, operands)


def stated(
    op: Op,
    code: str,
    fields: bytes = b"",
    more: bytes = b"",
    calls: tuple[Called, ...] = (),
    operands: tuple[Operand, ...] | None = None,
) -> InstructionTemplate:
    """One instruction of an op's results, taken out of their tuple where there are several."""
    types = [value.type for value in op.results]
    reads = tuple(range(len(op.operands))) if operands is None else operands
    single = len(types) == 1
    shape = shape_of(types[0]) if single else tuple_of(types)
    steps = [TemplateStep(code, shape, reads, fields, more, calls)]
    return InstructionTemplate(tuple(steps), (0,)) if single else elements(steps)


def elements(steps: list[TemplateStep]) -> InstructionTemplate:
    """The steps, and one for each member of the tuple that the last of them gives."""
    whole = len(steps) - 1
    for index, shape in enumerate(steps[whole].shape.members):
        place = integer(InstructionField.TUPLE_INDEX, index)
        steps.append(TemplateStep("get-tuple-element", shape, (StepResult(whole),), place))
    return InstructionTemplate(tuple(steps), tuple(range(whole + 1, len(steps))))


def read_instruction(row: HloRow, i: HloInstruction) -> Tree:
    """Append the ops of an instruction; its value.

    Raises:
        UnmodelledError: no op of the IR has this form.
        ContradictionError: it states something else than its operands give.
    """
    return (row.read or read_fields)(row, i)


def read_fields(row: HloRow, i: HloInstruction) -> Tree:
    """Append the op of an instruction, with the attributes of its row."""
    x = i.values
    return i.to.emit(row.op, x, **read_attrs(row, i))


def read_attrs(row: HloRow, i: HloInstruction) -> dict[str, AttrValue]:
    """The IR's attributes of an instruction."""
    attrs: dict[str, AttrValue] = {}
    if row.reduces:
        attrs["kind"] = _choice(row.op, "kind", i.to.file.reducer(i.called))
    for item in row.fields:
        attrs[item.attr] = item.read(i.message)
    if row.inferred:
        parts: dict[str, AttrValue] = {"dtype": i.shape.type.dtype, "shape": i.shape.type.dims}
        attrs |= {key: parts[key] for key in row.inferred}
    return attrs


def read_attrs_of_named(row: HloRow, i: HloInstruction) -> dict[str, AttrValue] | None:
    """The attributes of a reduction by a named op; ``None`` where it calls anything else."""
    try:
        return read_attrs(row, i)
    except UnmodelledError:
        if len(i.called) != 1:
            raise
        return None


def same_types(i: HloInstruction) -> list[Value]:
    """Both operands in an element type that holds the values of both.

    Raises:
        UnmodelledError: there is none.
    """
    x = i.values
    kinds = {value.dtype for value in x}
    if len(kinds) != 2:
        return x
    held = common_type(*kinds)
    if held is None:
        raise UnmodelledError(f"no element type of {sorted(map(repr, kinds))} holds both")
    out: list[Value] = []
    for place, value in enumerate(x):
        i.to.part(f"operand{place}")
        same = value.dtype is held
        out.append(value if same else i.to.emit("convert", [value], dtype=held))
    i.to.part("")
    return out


def _choice(op: str, attr: str, value: str) -> str:
    """``value`` if the op's attribute may be that."""
    allowed = next(item.type.choices for item in OPS[op].attrs if item.name == attr)
    if value not in allowed:
        raise UnmodelledError(f"{attr} {value} is not modelled")
    return value


def _dimension(i: Message) -> int:
    dims = i.integers(InstructionField.DIMENSIONS)
    if len(dims) != 1:
        raise UnmodelledError(f"its dimensions are {list(dims)}, not one")
    return dims[0]


# An op's one dimension, in the list of dimensions.
DIMENSION = HloField("dimension", attribute("iota_dimension"), _dimension)
