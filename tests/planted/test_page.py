"""The page shows the wrong rewrite by itself, and not folded into right ones that look like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.inspect.recording import record
from graphgen.passes.inspect.report import report
from tests.planted.faults import (
    Fault,
    Judgement,
    Row,
    again,
    assert_blamed,
    assert_right,
    expected,
    given,
    ir,
    name_of,
    planted,
    validated,
)


@dataclass(frozen=True, slots=True)
class FoldedFault(Fault):
    """A wrong rewrite among right ones that look like it."""

    def judge(self, *, right: bool = False) -> Judgement:
        """Validate, and look for the rewrite on the page."""
        own = validated(self, right=right)
        if right:
            return own
        module, item = given(self), planted(self)
        number = expected(module, item).number
        guilty = {item.name: [number]} if own.blamed else {}
        page: Any = report(record(module, [item]), {}, guilty)
        (stage,) = page["stages"]
        entries = [
            (entry["guilty"], [place for place, _ in entry["places"]])
            for entry in stage["rewrites"]
        ]
        alone = (True, [number]) in entries
        return Judgement(own.found, own.blamed and alone, f"{own.said}; {entries}")


LAYER = """\
%tN = tanh(%g) : f32[4]  # m.py:1 layers.N
%sN = multiply(%I, %tN) : f32[4]  # m.py:2 layers.N
%rN = multiply(%sN, %wN) : f32[4]  # m.py:3 layers.N"""


def layers(count: int = 3) -> str:
    """A program of equal layers."""
    lines: list[str] = []
    for number in range(count):
        before = f"r{number - 1}" if number else "x"
        lines.append(LAYER.replace("%I", f"%{before}").replace("N", str(number)))
    weights = {f"w{number}": "f32[4]" for number in range(count)}
    last = f"%y = negate(%r{count - 1}) : f32[4]  # m.py:4 head"
    return ir(*lines, last, x="f32[4]", g="f32[4]", y="f32[4]", **weights)


def product(layer: int, line: int) -> Callable[[Op], bool]:
    """The product of a layer that stands in this line."""
    return lambda op: op.loc.scope == f"layers.{layer}" and op.loc.line == line


def with_operand(
    place: int, choose: Callable[[Op, Builder], Value]
) -> Callable[[Op, Builder], Sequence[Value]]:
    """The op with another value at one place, as alike to look at."""

    def made(op: Op, b: Builder) -> Sequence[Value]:
        given = list(op.operands)
        given[place] = choose(op, b)
        return [again(op, b, *given)]

    return made


def argument(name: str) -> Callable[[Op, Builder], Value]:
    """An argument of the program."""

    def chosen(op: Op, b: Builder) -> Value:
        value = b.function.arg(name)
        assert value is not None
        return value

    return chosen


def swapped(op: Op, b: Builder) -> Sequence[Value]:
    """The factors in the other order."""
    return [again(op, b, *op.operands[::-1])]


def first_operand(op: Op, b: Builder) -> Value:
    """The op's own first operand, once more."""
    return op.operands[0]


FAULTS: tuple[Row, ...] = (
    FoldedFault(
        "weight-of-the-first-layer",
        layers(),
        "multiply",
        with_operand(1, argument("w0")),
        swapped,
        where=product(1, 3),
    ),
    FoldedFault(
        "input-instead-of-its-tangent",
        layers(),
        "multiply",
        with_operand(1, argument("g")),
        swapped,
        where=product(2, 2),
    ),
    FoldedFault(
        "square-in-one-layer",
        layers(),
        "multiply",
        with_operand(1, first_operand),
        swapped,
        where=product(1, 2),
    ),
    FoldedFault(
        "residual-of-the-start",
        layers(4),
        "multiply",
        with_operand(0, argument("x")),
        swapped,
        where=product(3, 2),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
