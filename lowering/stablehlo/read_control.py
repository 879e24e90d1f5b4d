"""Loops and choices of StableHLO: their regions become functions of the module.

A region may read what stands around it. What a loop's regions read becomes part of its state, what
a branch reads an operand; constants are made anew inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Function, Op, Value
from graphgen.lowering.stablehlo.read_names import given_name
from graphgen.lowering.stablehlo.read_tree import Node, Region
from graphgen.lowering.stablehlo.read_types import read_tensor_type

CHOICES = {"stablehlo.if": ("true", "false"), "stablehlo.case": ()}
CONTROL = ("stablehlo.while", *CHOICES)
# What is made anew in a region rather than handed in.
_PLAIN = frozenset(("constant", "iota"))


class To(Protocol):
    """Where loops and choices are read to."""

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op."""
        ...

    def outer(self, name: str, node: Node) -> Value:
        """The value called ``name`` around ``node`` (GG0202)."""
        ...

    def function(self, name: str) -> Function:
        """A new function, called about so; it gets into the module when it is done."""
        ...

    def fill(
        self, function: Function, region: Region, values: Mapping[str, Value], more: Sequence[Value]
    ) -> None:
        """Read a region into ``function``, which hands back what it returns, then ``more``."""
        ...


def read_control(to: To, node: Node, operands: Sequence[Value]) -> list[Value]:
    """The values of a loop or a choice.

    Raises:
        GraphgenError: GG0104 a form that StableHLO has not.
    """
    if node.name == "stablehlo.while":
        return _while(to, node, operands)
    names = CHOICES[node.name] or tuple([f"branch{i}" for i in range(len(node.regions))])
    if len(operands) != 1 or len(names) != len(node.regions) or not names:
        raise GraphgenError("GG0104", f"{node.name} needs one operand and its branches")
    given: list[list[Value]] = []
    branches: list[str] = []
    for name, region in zip(names, node.regions, strict=True):
        captured = _captured(to, node, [region])
        function = to.function(f"{node.name.partition('.')[2]}.{name}")
        to.fill(function, region, _inside(function, captured), ())
        given.append(_handed_in(captured))
        branches.append(function.name)
    attrs: dict[str, AttrValue] = {
        "branches": tuple(branches),
        "takes": tuple(map(len, given)),
        "results": tuple([read_tensor_type(text) for text in node.types]),
    }
    flat = [*operands, *[value for part in given for value in part]]
    return list(to.emit_all("conditional", flat, **attrs))


def _while(to: To, node: Node, operands: Sequence[Value]) -> list[Value]:
    regions = node.regions
    if len(regions) != 2 or any(len(region.args) != len(operands) for region in regions):
        raise GraphgenError("GG0104", f"{node.name} needs a condition and a body of its operands")
    captured = _captured(to, node, regions)
    names: dict[str, AttrValue] = {}
    for key, region in zip(("condition", "body"), regions, strict=True):
        function = to.function(f"while.{key}")
        values: dict[str, Value] = {}
        for index, argument in enumerate(region.args):
            name = given_name(argument.name) or f"state{index}"
            values[argument.name] = function.block.add_arg(read_tensor_type(argument.type), name)
        values |= _inside(function, captured)
        # What the body only reads, it hands on.
        more = function.args[len(operands) :] if key == "body" else []
        to.fill(function, region, values, more)
        names[key] = function.name
    made = to.emit_all("while", [*operands, *_handed_in(captured)], **names)
    return list(made[: len(operands)])


def _captured(to: To, node: Node, regions: Sequence[Region]) -> dict[str, Value]:
    """What regions read from around them, by the names they have there, in order of first use."""
    names = dict.fromkeys(name for region in regions for name in _free(region))
    return {name: to.outer(name, node) for name in names}


def _free(region: Region) -> Iterator[str]:
    """Names that a region reads and does not define."""
    known = {argument.name for argument in region.args}
    for node in region.body:
        for name in node.operands:
            if name not in known and name.removesuffix("#0") not in known:
                yield name
        for inner in node.regions:
            yield from (name for name in _free(inner) if name not in known)
        known.update(node.results)


def _handed_in(captured: Mapping[str, Value]) -> list[Value]:
    """The values among the captured that are no constants, each once."""
    return [value for value in dict.fromkeys(captured.values()) if not _plain(value)]


def _plain(value: Value) -> bool:
    return value.op is not None and value.op.name in _PLAIN


def _inside(function: Function, captured: Mapping[str, Value]) -> dict[str, Value]:
    """What stands for captured values in a function: arguments, and constants of its own."""
    made: dict[Value, Value] = {}
    for value in _handed_in(captured):
        name = value.name or f"outer{len(made)}"
        made[value] = function.block.add_arg(value.type, name)
    for value in captured.values():
        if value not in made and value.op is not None:
            op = value.op
            types = [result.type for result in op.results]
            copy = Op(op.name, (), types, op.attrs, op.loc, [result.name for result in op.results])
            function.block.append(copy)
            made.update(zip(op.results, copy.results, strict=True))
    return {name: made[value] for name, value in captured.items()}
