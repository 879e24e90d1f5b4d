"""Calls, loops and choices of an HLO file: what they run become functions of the module."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol, cast

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Function, TensorType, Value
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.shape import HloShape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.read_opaque import tree_of
from graphgen.lowering.hlo.read_ops import Tree, UnmodelledError
from graphgen.ops.control import UNKNOWN_TRIPS

CODES = ("call", "while", "conditional")


class ContradictionError(UnmodelledError):
    """An instruction that states what its operands cannot give: the file is wrong."""


class To(Protocol):
    """Where instructions are read to."""

    def emit_stated(
        self, name: str, operands: Sequence[Value], shape: HloShape, **attrs: AttrValue
    ) -> Sequence[Value]:
        """Append an op whose results are the arrays in ``shape``."""
        ...

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op."""
        ...


class Functions(Protocol):
    """The computations of the file."""

    def function(self, number: int) -> Function:
        """A computation that is called, as a function."""
        ...

    def body(self, number: int) -> Function:
        """A computation of a loop or a choice; raises ``UnmodelledError`` if it cannot be read."""
        ...


def read_control(
    to: To, file: Functions, code: str, i: Message, operands: Sequence[Tree], shape: HloShape
) -> Tree:
    """What the instruction ``i`` becomes.

    Raises:
        UnmodelledError: it has no such form.
        ContradictionError: what it runs takes or gives something else.
    """
    called = i.integers(InstructionField.CALLED_IDS)
    if code == "call":
        if len(called) != 1 or i.boolean(InstructionField.IS_COMPOSITE):
            raise UnmodelledError("it is no call of one computation")
        return _call(to, file.function(called[0]), operands, shape)
    if not shape.leaves:
        raise UnmodelledError("it gives nothing")
    functions = [file.body(number) for number in called]
    if code == "while":
        return _while(to, i, functions, operands, shape)
    return _conditional(to, functions, operands, shape)


def leaves(tree: Tree) -> list[Value]:
    """The values in a tuple, from left to right."""
    if isinstance(tree, Value):
        return [tree]
    return [leaf for part in tree for leaf in leaves(part)]


def _call(to: To, function: Function, operands: Sequence[Tree], shape: HloShape) -> Tree:
    flat = leaves(tuple(operands))
    _fits(function, flat, [leaf.type for leaf in shape.leaves])
    return tree_of(shape, [*to.emit_stated("call", flat, shape, to_apply=function.name)])


def _while(
    to: To, i: Message, functions: Sequence[Function], operands: Sequence[Tree], shape: HloShape
) -> Tree:
    """HLO names the body first."""
    if len(functions) != 2 or len(operands) != 1:
        raise UnmodelledError("it is no loop of a body and a condition")
    body, condition = functions
    flat = leaves(operands[0])
    _fits(body, flat, [leaf.type for leaf in shape.leaves])
    _fits(condition, flat)
    if [value.type.text for _, value in condition.outputs] != ["pred[]"]:
        raise ContradictionError(f"its condition %{condition.name} gives no pred[]")
    names: dict[str, AttrValue] = {"condition": condition.name, "body": body.name}
    made = to.emit_all("while", flat, **names, trip_count=known_trips(i))
    return tree_of(shape, list(made))


def _conditional(
    to: To, functions: Sequence[Function], operands: Sequence[Tree], shape: HloShape
) -> Tree:
    if not functions or len(operands) != 1 + len(functions):
        raise UnmodelledError("it has not one operand for each branch")
    (which, *rest) = operands
    if not isinstance(which, Value):
        raise UnmodelledError("it chooses by a tuple")
    given = [leaves(tree) for tree in rest]
    for function, flat in zip(functions, given, strict=True):
        _fits(function, flat, [leaf.type for leaf in shape.leaves])
    attrs: dict[str, AttrValue] = {
        "branches": tuple([function.name for function in functions]),
        "takes": tuple(map(len, given)),
    }
    flat = [which, *[value for part in given for value in part]]
    return tree_of(shape, [*to.emit_stated("conditional", flat, shape, **attrs)])


def _fits(
    function: Function, given: Sequence[Value], gives: Sequence[TensorType] | None = None
) -> None:
    takes = [value.type for value in function.args]
    made = [value.type for _, value in function.outputs]
    if takes != [value.type for value in given] or (gives is not None and made != list(gives)):
        raise ContradictionError(f"it does not fit %{function.name}")


def known_trips(i: Message) -> int:
    """How often XLA says that a loop runs, -1 where it does not."""
    found = _config(i).get("known_trip_count")
    count = cast("dict[str, object]", found).get("n") if isinstance(found, dict) else None
    return int(count) if isinstance(count, str) and count.isdigit() else UNKNOWN_TRIPS


def says_only_trips(i: Message) -> bool:
    """Whether the configuration of a loop says no more than that."""
    return [*_config(i)] == ["known_trip_count"] and known_trips(i) != UNKNOWN_TRIPS


def _config(i: Message) -> dict[str, object]:
    try:
        found: object = json.loads(i.text(InstructionField.BACKEND_CONFIG))
    except (ValueError, GraphgenError):
        return {}
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}
