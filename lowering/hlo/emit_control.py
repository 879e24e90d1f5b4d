"""How calls, loops and choices are written in HLO: computations of the functions they run.

A loop has one operand, the tuple of its state, and a choice one for each branch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from graphgen.ir import Op, TensorType
from graphgen.ops.control import UNKNOWN_TRIPS, branch_operands, callees
from lowering.hlo.emit_foreign import stated
from lowering.hlo.fields import InstructionField
from lowering.hlo.recipe import Before, Callee, Operand, Recipe, Step
from lowering.hlo.shape import shape_of, tuple_of
from lowering.hlo.wire import integer, text


def _call(op: Op) -> Recipe:
    return stated(op, "call", calls=(Callee(op.attrs.text("to_apply")),))


def _while(op: Op) -> Recipe:
    types = [value.type for value in op.operands]
    steps = [Step("tuple", tuple_of(types), tuple(range(len(types))))]
    condition, body = callees(op)
    calls = (Callee(body, True, True), Callee(condition, True))
    trips = op.attrs.integer("trip_count")
    more = b""
    if trips != UNKNOWN_TRIPS:
        said = json.dumps({"known_trip_count": {"n": str(trips)}}, separators=(",", ":"))
        more = text(InstructionField.BACKEND_CONFIG, said)
    steps.append(Step("while", tuple_of(types), (Before(0),), more=more, calls=calls))
    return _taken_apart(steps, types)


def _conditional(op: Op) -> Recipe:
    types = [value.type for value in op.results]
    steps: list[Step] = []
    reads: list[Operand] = [0]
    place = 1
    for given in branch_operands(op):
        parts = tuple(range(place, place + len(given)))
        place += len(given)
        reads.append(Before(len(steps)))
        steps.append(Step("tuple", tuple_of([value.type for value in given]), parts))
    calls = tuple([Callee(name, True, True) for name in callees(op)])
    steps.append(Step("conditional", tuple_of(types), tuple(reads), calls=calls))
    return _taken_apart(steps, types)


def _taken_apart(steps: list[Step], types: Sequence[TensorType]) -> Recipe:
    """The arrays in the tuple that the last step gives."""
    whole = len(steps) - 1
    for index, type_ in enumerate(types):
        place = integer(InstructionField.TUPLE_INDEX, index)
        steps.append(Step("get-tuple-element", shape_of(type_), (Before(whole),), place))
    return Recipe(tuple(steps), tuple(range(whole + 1, len(steps))))


CONTROL: dict[str, Callable[[Op], Recipe]] = {
    "call": _call,
    "while": _while,
    "conditional": _conditional,
}
