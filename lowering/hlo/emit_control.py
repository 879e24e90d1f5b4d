"""How calls, loops and choices are written in HLO: computations of the functions they run.

A loop has one operand, the tuple of its state, and a choice one for each branch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from graphgen.ir import Op, TensorType
from graphgen.lowering.hlo.dialect.instruction_template import (
    Callee,
    InstructionTemplate,
    Operand,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.emit_foreign import stated
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.shape import shape_of, tuple_of
from graphgen.lowering.hlo.proto.wire import integer, text
from graphgen.ops.control import UNKNOWN_TRIPS, branch_operands, callees


def _call(op: Op) -> InstructionTemplate:
    return stated(op, "call", calls=(Callee(op.attrs.text("to_apply")),))


def _while(op: Op) -> InstructionTemplate:
    types = [value.type for value in op.operands]
    steps = [TemplateStep("tuple", tuple_of(types), tuple(range(len(types))))]
    condition, body = callees(op)
    calls = (Callee(body, True, True), Callee(condition, True))
    trips = op.attrs.integer("trip_count")
    more = b""
    if trips != UNKNOWN_TRIPS:
        said = json.dumps({"known_trip_count": {"n": str(trips)}}, separators=(",", ":"))
        more = text(InstructionField.BACKEND_CONFIG, said)
    steps.append(TemplateStep("while", tuple_of(types), (StepResult(0),), more=more, calls=calls))
    return _taken_apart(steps, types)


def _conditional(op: Op) -> InstructionTemplate:
    types = [value.type for value in op.results]
    steps: list[TemplateStep] = []
    reads: list[Operand] = [0]
    place = 1
    for given in branch_operands(op):
        parts = tuple(range(place, place + len(given)))
        place += len(given)
        reads.append(StepResult(len(steps)))
        steps.append(TemplateStep("tuple", tuple_of([value.type for value in given]), parts))
    calls = tuple([Callee(name, True, True) for name in callees(op)])
    steps.append(TemplateStep("conditional", tuple_of(types), tuple(reads), calls=calls))
    return _taken_apart(steps, types)


def _taken_apart(steps: list[TemplateStep], types: Sequence[TensorType]) -> InstructionTemplate:
    """The arrays in the tuple that the last step gives."""
    whole = len(steps) - 1
    for index, type_ in enumerate(types):
        place = integer(InstructionField.TUPLE_INDEX, index)
        steps.append(
            TemplateStep("get-tuple-element", shape_of(type_), (StepResult(whole),), place)
        )
    return InstructionTemplate(tuple(steps), tuple(range(whole + 1, len(steps))))


CONTROL: dict[str, Callable[[Op], InstructionTemplate]] = {
    "call": _call,
    "while": _while,
    "conditional": _conditional,
}
