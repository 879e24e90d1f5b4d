"""Rows of calls, loops and branches: the computations they run are functions of the module.

A loop has one operand, the tuple of its state; a conditional has one for each branch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Function, Op, TensorType, Value
from graphgen.json_value import parse_json
from graphgen.lowering.hlo.instruction_template import (
    Callee,
    InstructionTemplate,
    Operand,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.op_builder import Tree, leaves, tree_of
from graphgen.lowering.hlo.op_row import HloInstruction, HloRow, elements, row, stated
from graphgen.lowering.hlo.unmodelled import ContradictionError, UnmodelledError
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.shape import tuple_of
from graphgen.lowering.hlo_proto.wire import Message, text
from graphgen.numbers import whole_number
from graphgen.ops.control import UNKNOWN_TRIPS, branch_operands, callees, kernel_of
from graphgen.ops.custom_calls import NKI

_F = InstructionField


def _write_call(row: HloRow, op: Op) -> InstructionTemplate:
    if kernel_of(op) == NKI:
        # Only Neuron's compiler knows the meaning of the function.
        config = text(_F.BACKEND_CONFIG, op.attrs.text("config"))
        return stated(op, "custom-call", text(_F.CUSTOM_CALL_TARGET, NKI), config)
    return stated(op, row.name, calls=(Callee(op.attrs.text("to_apply")),))


def _read_call(row: HloRow, i: HloInstruction) -> Tree:
    called = i.called
    if len(called) != 1:
        raise UnmodelledError("it is not a call of one computation")
    return _call(i, i.to.file.function(called[0]))


def _call(i: HloInstruction, function: Function) -> Tree:
    flat = leaves(tuple(i.operands))
    _fits(function, flat, [leaf.type for leaf in i.shape.leaves])
    return tree_of(i.shape, [*i.to.emit_stated("call", flat, i.shape, to_apply=function.name)])


def _read_fusion(row: HloRow, i: HloInstruction) -> Tree:
    """A call of what is fused; how it is fused is annotated."""
    called = i.called
    if len(called) != 1 or not i.shape.leaves:
        raise UnmodelledError("it is not a fusion of one computation")
    return _call(i, i.to.file.body(called[0]))


def _write_while(row: HloRow, op: Op) -> InstructionTemplate:
    types = [value.type for value in op.operands]
    condition, body = callees(op)
    calls = (Callee(body, True, True), Callee(condition, True))
    trips = op.attrs.integer("trip_count")
    config = ""
    if trips != UNKNOWN_TRIPS:
        config = json.dumps({"known_trip_count": {"n": str(trips)}}, separators=(",", ":"))
    more = text(_F.BACKEND_CONFIG, config)
    return elements(
        [
            TemplateStep("tuple", tuple_of(types), tuple(range(len(types)))),
            TemplateStep(row.name, tuple_of(types), (StepResult(0),), more=more, calls=calls),
        ]
    )


def _read_while(row: HloRow, i: HloInstruction) -> Tree:
    """HLO names the body first."""
    functions = _bodies(i)
    if len(functions) != 2 or len(i.operands) != 1:
        raise UnmodelledError("it is not a loop with a body and a condition")
    body, condition = functions
    flat = leaves(i.operands[0])
    _fits(body, flat, [leaf.type for leaf in i.shape.leaves])
    _fits(condition, flat)
    if [value.type.text for _, value in condition.outputs] != ["pred[]"]:
        raise ContradictionError(f"its condition %{condition.name} gives no pred[]")
    names: dict[str, AttrValue] = {"condition": condition.name, "body": body.name}
    made = i.to.emit_all("while", flat, **names, trip_count=_known_trips(i.message))
    i.to.unnamed.update(dict.fromkeys(made))
    return tree_of(i.shape, list(made))


def _write_conditional(row: HloRow, op: Op) -> InstructionTemplate:
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
    return elements([*steps, TemplateStep(row.name, tuple_of(types), tuple(reads), calls=calls)])


def _read_conditional(row: HloRow, i: HloInstruction) -> Tree:
    functions = _bodies(i)
    if not functions or len(i.operands) != 1 + len(functions):
        raise UnmodelledError("it has not one operand for each branch")
    (which, *rest) = i.operands
    if not isinstance(which, Value):
        raise UnmodelledError("it chooses by a tuple")
    given = [leaves(tree) for tree in rest]
    for function, flat in zip(functions, given, strict=True):
        _fits(function, flat, [leaf.type for leaf in i.shape.leaves])
    attrs: dict[str, AttrValue] = {
        "branches": tuple([function.name for function in functions]),
        "takes": tuple(map(len, given)),
    }
    flat = [which, *[value for part in given for value in part]]
    return tree_of(i.shape, [*i.to.emit_stated("conditional", flat, i.shape, **attrs)])


def _bodies(i: HloInstruction) -> list[Function]:
    if not i.shape.leaves:
        raise UnmodelledError("it gives nothing")
    return [i.to.file.body(number) for number in i.called]


def _fits(
    function: Function, given: Sequence[Value], gives: Sequence[TensorType] | None = None
) -> None:
    takes = [value.type for value in function.args]
    made = [value.type for _, value in function.outputs]
    if takes != [value.type for value in given] or (gives is not None and made != list(gives)):
        raise ContradictionError(f"it does not fit %{function.name}")


def _known_trips(i: Message) -> int:
    """XLA's number of turns of a loop, :data:`UNKNOWN_TRIPS` where there is none."""
    found = _config(i).get("known_trip_count")
    count = cast("dict[str, object]", found).get("n") if isinstance(found, dict) else None
    try:
        return whole_number(count)
    except ValueError:
        return UNKNOWN_TRIPS


def has_only_trips(i: Message) -> bool:
    """The configuration of a loop holds its number of turns and nothing else."""
    return [*_config(i)] == ["known_trip_count"] and _known_trips(i) != UNKNOWN_TRIPS


def _config(i: Message) -> dict[str, object]:
    try:
        found: object = parse_json(i.data(_F.BACKEND_CONFIG))
    except (ValueError, GraphgenError):
        return {}
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


CONTROL_ROWS: tuple[HloRow, ...] = (
    row("call", emit=_write_call, read=_read_call),
    row("", name="fusion", read=_read_fusion),
    row("while", emit=_write_while, read=_read_while),
    row("conditional", emit=_write_conditional, read=_read_conditional),
)
