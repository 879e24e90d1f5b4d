"""Rows of custom calls and opaque instructions: kept as they were read, and written so."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Op, TensorType, Value
from graphgen.lowering.hlo.annotations import HINTS
from graphgen.lowering.hlo.instruction_template import (
    InstructionTemplate,
    Operand,
    StepResult,
    Subcomputation,
    TemplateStep,
)
from graphgen.lowering.hlo.op_builder import Tree, leaves, tree_of
from graphgen.lowering.hlo.op_row import HloInstruction, HloRow, row, stated
from graphgen.lowering.hlo.unmodelled import UnmodelledError
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.instruction import stated_fields
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of
from graphgen.lowering.hlo_proto.wire import Message, integer, text
from graphgen.ops.external import SILENT

_F = InstructionField
# Fields that the op holds otherwise, or that are computed when it is written.
_ELSEWHERE = frozenset(
    (
        *(_F.NAME, _F.OPCODE, _F.SHAPE, _F.METADATA, _F.ID, _F.OPERAND_IDS, _F.CALLED_IDS),
        *(_F.CONTROL_PREDECESSOR_IDS, _F.FRONTEND_ATTRIBUTES),
    )
)
_TARGET = frozenset((_F.CUSTOM_CALL_TARGET,))
_CALL = _TARGET | {_F.BACKEND_CONFIG}

# The number of an operand or a result, or the members of a tuple.
Nested = int | tuple["Nested", ...]


def _write_custom_call(row: HloRow, op: Op) -> InstructionTemplate:
    target = text(_F.CUSTOM_CALL_TARGET, op.attrs.text("target"))
    config = text(_F.BACKEND_CONFIG, op.attrs.text("config"))
    fields, more = (bytes.fromhex(op.attrs.text(key)) for key in ("fields", "more"))
    if op.attrs["silent"] is not True:
        return stated(op, row.name, fields + target, config + more)
    reads = tuple(range(len(op.operands)))
    step = TemplateStep(row.name, HloShape("tuple"), reads, fields + target, config + more)
    return InstructionTemplate((step,), (0,))


def _read_custom_call(row: HloRow, i: HloInstruction) -> Tree:
    """One with tuples inside, or computations, is opaque."""
    flat = [item for item in i.operands if isinstance(item, Value)]
    nested = any(member.is_tuple for member in i.shape.members) or len(i.shape.members) == 1
    if (
        i.message.has(_F.CALLED_IDS)
        or len(flat) != len(i.operands)
        or (i.shape.is_tuple and nested)
    ):
        raise UnmodelledError("it has tuples or computations")
    target, config = i.message.text(_F.CUSTOM_CALL_TARGET), _config(i.message)
    # A configuration that is not text stays among the fields.
    left = _CALL if config is not None else _TARGET
    fields, more = _own(i.message, left | HINTS)
    given = {"target": target, "config": config or "", "fields": fields, "more": more}
    if i.shape.is_tuple and not i.shape.leaves:
        i.to.emit_stated(row.op, flat, shape_of(SILENT), **given, silent=True)
        return ()
    made = i.to.emit_stated(row.op, flat, i.shape, **given)
    return tuple(made) if i.shape.is_tuple else made[0]


def _config(i: Message) -> str | None:
    """The configuration as text; ``None`` for bytes that are not UTF-8, as cuDNN's."""
    try:
        return i.data(_F.BACKEND_CONFIG).decode()
    except UnicodeDecodeError:
        return None


def _write_opaque(row: HloRow, op: Op) -> InstructionTemplate:
    if op.attrs.text("text"):
        what = f"{op.attrs.text('opcode')} was read from StableHLO as its text: HLO has none of it"
        raise GraphgenError("GG0401", what, where=repr(op.loc), help="write StableHLO instead")
    fields, more = (bytes.fromhex(op.attrs.text(key)) for key in ("fields", "more"))
    given = op.attrs.text("regions")
    calls = tuple([Subcomputation(data) for data in given.split(",")]) if given else ()
    code, form = op.attrs.text("opcode"), op.attrs.text("form")
    if not form:
        return stated(op, code, fields, more, calls)
    left, _, right = form.partition("->")
    steps: list[TemplateStep] = []
    types = [value.type for value in op.operands]
    operands = tuple([_gathered(item, types, steps) for item in _nested(left)])
    (whole,) = _nested(right)
    shape = _shape(whole, [value.type for value in op.results])
    steps.append(TemplateStep(code, shape, operands, fields, more, calls))
    # An instruction that gives nothing stands for its empty result.
    places: dict[int, int] = {0: len(steps) - 1}
    _taken_apart(whole, shape, len(steps) - 1, steps, places)
    return InstructionTemplate(tuple(steps), tuple([places[i] for i in range(len(op.results))]))


def _nested(form: str) -> tuple[Nested, ...]:
    """One side of a form, numbered from left to right: ``x(xx)`` is ``(0, (1, 2))``."""
    stack: list[list[Nested]] = [[]]
    count = 0
    for letter in form:
        if letter == "(":
            stack.append([])
        elif letter == ")":
            closed = tuple(stack.pop())
            stack[-1].append(closed)
        else:
            stack[-1].append(count)
            count += 1
    return tuple(stack[0])


def _shape(item: Nested, types: Sequence[TensorType]) -> HloShape:
    if isinstance(item, int):
        return shape_of(types[item])
    return HloShape("tuple", members=tuple([_shape(part, types) for part in item]))


def _gathered(item: Nested, types: Sequence[TensorType], steps: list[TemplateStep]) -> Operand:
    """An operand; the members of a tuple are put into one first."""
    if isinstance(item, int):
        return item
    parts = tuple([_gathered(part, types, steps) for part in item])
    steps.append(TemplateStep("tuple", _shape(item, types), parts))
    return StepResult(len(steps) - 1)


def _taken_apart(
    item: Nested, shape: HloShape, at: int, steps: list[TemplateStep], places: dict[int, int]
) -> None:
    """The arrays in the tuple that step ``at`` gives; ``places`` gets the step of each."""
    if isinstance(item, int):
        places[item] = at
        return
    for index, part in enumerate(item):
        inner = shape.members[index]
        place = integer(_F.TUPLE_INDEX, index)
        steps.append(TemplateStep("get-tuple-element", inner, (StepResult(at),), place))
        _taken_apart(part, inner, len(steps) - 1, steps, places)


def read_opaque(row: HloRow, i: HloInstruction) -> Tree:
    """The op of any instruction; an empty array stands for what one without results gives."""
    fields, more = _own(i.message, HINTS)
    made = i.to.emit_stated(
        row.op,
        leaves(tuple(i.operands)),
        i.shape if i.shape.leaves else shape_of(SILENT),
        opcode=i.message.text(_F.OPCODE),
        fields=fields,
        more=more,
        form=_form(i.operands, i.shape),
        regions=",".join([i.to.file.packed(number) for number in i.called]),
    )
    return tree_of(i.shape, list(made))


def _own(i: Message, without: frozenset[int]) -> tuple[str, str]:
    """The instruction's own fields in hexadecimal, before and after the ids."""
    kept = stated_fields(i, _ELSEWHERE | without)
    before = b"".join([data for number, data in kept if number < _F.ID])
    return before.hex(), b"".join([data for number, data in kept if number > _F.ID]).hex()


def _form(operands: Sequence[Tree], shape: HloShape) -> str:
    """Nesting of operands and results, ``x`` per array; empty without nested tuples."""
    flat = all(isinstance(item, Value) for item in operands)
    plain = not shape.is_tuple or (
        len(shape.members) > 1 and not any(member.is_tuple for member in shape.members)
    )
    if flat and plain:
        return ""
    return "".join(map(_tree_form, operands)) + "->" + _shape_form(shape)


def _tree_form(tree: Tree) -> str:
    return "x" if isinstance(tree, Value) else f"({''.join(map(_tree_form, tree))})"


def _shape_form(shape: HloShape) -> str:
    return f"({''.join(map(_shape_form, shape.members))})" if shape.is_tuple else "x"


OPAQUE = row("hlo.opaque", name="", emit=_write_opaque, read=read_opaque)
EXTERNAL_ROWS: tuple[HloRow, ...] = (
    row("custom_call", emit=_write_custom_call, read=_read_custom_call),
    OPAQUE,
)
