"""The data of the page: which rewrites and layers stand for others, and which never do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.ir.clone import clone_module
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match
from graphgen.passes.core.rule import Rule
from graphgen.passes.inspect.recording import record
from graphgen.passes.inspect.report import fold, report
from graphgen.passes.inspect.text_diff import changes
from graphgen.text import parse

# An op, and the function that it is in, to the operands of the op in its place.
Operands = Callable[[Op, Builder], Sequence[Value]]


@dataclass(frozen=True)
class Again(Pass):
    """Each ``multiply`` once more, with other operands."""

    name: ClassVar[str] = "again"
    operands: Operands = field(default=lambda op, b: op.operands)

    def run(self, module: Module, rewriter: Rewriter) -> None:
        def apply(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
            if self.name in op.loc.via:
                return no_match("made by this pass", op.result)
            return list(b.emit(op.name, tuple(self.operands(op, b)), dict(op.attrs)).results)

        rule = Rule("again", ("multiply",), apply)
        for function in module.programs():
            rewriter.apply_rules(function, [rule])


def layers(*bodies: str) -> Module:
    """A program of layers, each of them a body with ``N`` for its number."""
    rows, args, lines = ["input %x : f32[4]", "input %g : f32[4]", "output %y : f32[4]"], [], []
    for number, body in enumerate(bodies):
        for name in ("w", "v"):
            rows.append(f"input %layers.{number}.{name} : f32[4]")
            args.append(f"arg %layers.{number}.{name} : f32[4]")
        lines += [line.replace("N", str(number)) for line in body.splitlines()]
    args = ["arg %x : f32[4]", "arg %g : f32[4]", *args]
    head = "".join(f"  {row}\n" for row in rows)
    text = "".join(f"  {line}\n" for line in [*args, *lines])
    last = f"%r{len(bodies) - 1}"
    return parse(
        f"module @m level=target {{\n{head}}}\n\n"
        f"func @main phase=main {{\n{text}  return y = {last}\n}}\n"
    )


LAYER = """%tN = tanh(%g) : f32[4]  # m.py:1 layers.N
%sN = multiply({before}, %tN) : f32[4]  # m.py:2 layers.N
%rN = multiply(%sN, %layers.N.w) : f32[4]  # m.py:3 layers.N"""
THREE = layers(*[LAYER.format(before=before) for before in ("%x", "%r0", "%r1")])


def places(module: Module, operands: Operands, guilty: Sequence[int] = ()) -> list[list[int]]:
    """The numbers of the rewrites of each entry."""
    found: Any = report(
        record(clone_module(module), [Again(operands=operands)]), {}, {"again": guilty}
    )
    return [[number for number, _ in item["places"]] for item in found["stages"][0]["rewrites"]]


def swapped(op: Op, b: Builder) -> Sequence[Value]:
    return op.operands[::-1]


def argument(op: Op, name: str) -> Value:
    assert op.block is not None
    return next(value for value in op.block.args if value.name == name)


def of_tanh(op: Op, b: Builder) -> Sequence[Value]:
    """Swapped; in layer 1 the factor is the operand of ``tanh``."""
    x, t = op.operands
    tanh = t.producer("tanh")
    wrong = tanh is not None and op.loc.scope == "layers.1"
    return (tanh.operands[0] if wrong and tanh else t), x


def of_layer_0(op: Op, b: Builder) -> Sequence[Value]:
    """The weight of layer 0 in every layer."""
    x, w = op.operands
    return (x, argument(op, "layers.0.w")) if w.op is None else (x, w)


def of_another_weight(op: Op, b: Builder) -> Sequence[Value]:
    x, w = op.operands
    wrong = w.op is None and op.loc.scope == "layers.2"
    return (x, argument(op, "layers.2.v")) if wrong else (x, w)


def test_equal_rewrites_of_layers_are_one_entry():
    assert places(THREE, swapped) == [[1], [2, 4, 6], [3, 5]]


@pytest.mark.parametrize(
    ("operands", "alone"), [(of_tanh, 3), (of_another_weight, 6)], ids=["of_tanh", "weight"]
)
def test_a_rewrite_with_other_operands_is_an_entry_of_its_own(operands: Operands, alone: int):
    assert [alone] in places(THREE, operands)


def test_the_weight_of_another_layer_is_not_its_own():
    assert [2] in places(THREE, of_layer_0)


def test_a_rewrite_at_fault_is_an_entry_of_its_own_and_marked():
    assert places(THREE, swapped, [4]) == [[1], [2, 6], [3, 5], [4]]
    found: Any = report(record(clone_module(THREE), [Again()]), {}, {"again": [4]})
    marked = [item for item in found["stages"][0]["rewrites"] if item["guilty"]]
    assert [item["places"] for item in marked] == [[[4, "layers.1"]]]


OWN = LAYER.replace("%tN = tanh(%g)", "%tN = tanh(%layers.N.v)")


@pytest.mark.parametrize(
    "other",
    [
        OWN.replace("(%layers.N.v)", "(%layers.0.v)"),
        OWN.replace("{before}, %tN", "{before}, {before}"),
    ],
    ids=["of another layer", "another operand"],
)
def test_a_layer_wired_otherwise_is_not_taken_for_another(other: str):
    def shown(last: str) -> set[str]:
        first = "%e = negate(%x) : f32[4]\n" + OWN.format(before="%e")
        module = layers(first, OWN.format(before="%r0"), last.format(before="%r1"))
        return set(fold(record(module, [])).shown.values())

    assert shown(OWN) == {"layers.0"}
    assert shown(other) == {"layers.0", "layers.2"}


SHARED = """%sN = multiply({before}, %{table}) : f32[4]  # m.py:2 layers.N
%rN = add(%sN, %sN) : f32[4]  # m.py:3 layers.N"""


def test_a_layer_that_reads_another_table_is_not_taken_for_another():
    def shown(*tables: str) -> set[str]:
        befores = ("%e", "%r0", "%r1", "%r2")
        bodies = [
            SHARED.format(before=before, table=table)
            for before, table in zip(befores, tables, strict=True)
        ]
        bodies[0] = (
            "%e = negate(%x) : f32[4]\n%cos = cosine(%g) : f32[4]\n%sin = sine(%g) : f32[4]\n"
            + bodies[0]
        )
        return set(fold(record(layers(*bodies), [])).shown.values())

    assert shown("cos", "cos", "cos", "cos") == {"layers.0"}
    assert shown("cos", "cos", "sin", "sin") == {"layers.0", "layers.2"}


def test_a_change_with_another_weight_is_shown():
    def hunks(*weights: str) -> list[int]:
        """How often each hunk that is shown stands for others, of a change in each layer."""
        one: list[str] = []
        for number, weight in enumerate(weights):
            line = f"%{number} = negate(%layers.{number}.{weight})  # m.py:1 layers.{number}"
            # Far enough apart to be hunks of their own.
            one += [line, *[f"%g{place} = gap()" for place in range(9)]]
        other = [line.replace("negate", "tanh") for line in one]
        return [len(hunk.again) for hunk in changes({"@f": one}, {"@f": other})]

    assert hunks("w", "w", "w") == [2]
    assert hunks("w", "w", "v") == [1, 0]
