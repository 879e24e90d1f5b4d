"""How custom calls and opaque instructions are written: as they were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.ir import Op, TensorType
from graphgen.lowering.hlo.dialect.instruction_template import (
    Called,
    InstructionTemplate,
    Operand,
    StepResult,
    Subcomputation,
    TemplateStep,
    one,
)
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.shape import HloShape, shape_of, tuple_of
from graphgen.lowering.hlo.proto.wire import integer, text

# The number of an operand or a result, or what a tuple holds.
Nested = int | tuple["Nested", ...]


def nested(form: str) -> tuple[Nested, ...]:
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


def stated(
    op: Op,
    code: str,
    fields: bytes = b"",
    more: bytes = b"",
    calls: tuple[Called, ...] = (),
    operands: tuple[Operand, ...] | None = None,
) -> InstructionTemplate:
    """One instruction of the stated results, taken out of their tuple where there are several."""
    types = [value.type for value in op.results]
    reads = tuple(range(len(op.operands))) if operands is None else operands
    if len(types) == 1:
        return one(code, types[0], reads, fields, more, calls)
    steps = [TemplateStep(code, tuple_of(types), reads, fields, more, calls)]
    for index, type_ in enumerate(types):
        place = integer(InstructionField.TUPLE_INDEX, index)
        steps.append(TemplateStep("get-tuple-element", shape_of(type_), (StepResult(0),), place))
    return InstructionTemplate(tuple(steps), tuple(range(1, len(steps))))


def _custom_call(op: Op) -> InstructionTemplate:
    target = text(InstructionField.CUSTOM_CALL_TARGET, op.attrs.text("target"))
    config = text(InstructionField.BACKEND_CONFIG, op.attrs.text("config"))
    fields, more = (bytes.fromhex(op.attrs.text(key)) for key in ("fields", "more"))
    return stated(op, "custom-call", fields + target, config + more)


def _opaque(op: Op) -> InstructionTemplate:
    fields, more = (bytes.fromhex(op.attrs.text(key)) for key in ("fields", "more"))
    given = op.attrs.text("regions")
    calls = tuple([Subcomputation(data) for data in given.split(",")]) if given else ()
    code, form = op.attrs.text("opcode"), op.attrs.text("form")
    if not form:
        return stated(op, code, fields, more, calls)
    left, _, right = form.partition("->")
    steps: list[TemplateStep] = []
    types = [value.type for value in op.operands]
    operands = tuple([_gathered(item, types, steps) for item in nested(left)])
    (whole,) = nested(right)
    shape = _shape(whole, [value.type for value in op.results])
    steps.append(TemplateStep(code, shape, operands, fields, more, calls))
    places: dict[int, int] = {}
    _taken_apart(whole, shape, len(steps) - 1, steps, places)
    return InstructionTemplate(tuple(steps), tuple([places[i] for i in range(len(op.results))]))


def _shape(item: Nested, types: Sequence[TensorType]) -> HloShape:
    if isinstance(item, int):
        return shape_of(types[item])
    return HloShape("tuple", members=tuple([_shape(part, types) for part in item]))


def _gathered(item: Nested, types: Sequence[TensorType], steps: list[TemplateStep]) -> Operand:
    """An operand; what is in a tuple is put into one first."""
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
        place = integer(InstructionField.TUPLE_INDEX, index)
        steps.append(TemplateStep("get-tuple-element", inner, (StepResult(at),), place))
        _taken_apart(part, inner, len(steps) - 1, steps, places)


FOREIGN: dict[str, Callable[[Op], InstructionTemplate]] = {
    "custom_call": _custom_call,
    "hlo.opaque": _opaque,
}
