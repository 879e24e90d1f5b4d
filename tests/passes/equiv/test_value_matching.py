"""Counterparts of values: by name, by source line, by a composite, by numbers, by operands."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import MEANING
from graphgen.ir import Value
from graphgen.passes.equiv.value_matching import ValueMatching
from graphgen.passes.equiv.value_trace import ValueTrace, trace
from graphgen.text import parse

X = np.linspace(-1, 2, 6).reshape(2, 3)


def traced(*body: str) -> ValueTrace:
    lines = "\n".join(f"  {line}" for line in body)
    module = parse(
        "module @m level=logical {\n  input %x : f32[2,3]\n  output %y : f32[2,3]\n}\n\n"
        f"func @f phase=main {{\n  arg %x : f32[2,3]\n{lines}\n}}\n"
    )
    return trace(module, module.function("f"), [{"x": X}], MEANING)


def named(run: ValueTrace, name: str) -> Value:
    return next(value for value in run.parts if value.name == name)


def matching(left: ValueTrace, right: ValueTrace) -> ValueMatching:
    return ValueMatching(left, right, {named(right, "x"): named(left, "x")}, 1e-6)


LEFT = traced(
    "%a = negate(%x) : f32[2,3]  # m.py:3 mlp",
    "%b = exponential(%a) : f32[2,3]  # m.py:4 mlp",
    "%c = tanh(%b) : f32[2,3]  # m.py:5 out",
    "return y = %c",
)


@pytest.mark.parametrize(
    ("line", "counterpart"),
    [
        # The name and the kind of op; the name and the scope; neither; the line.
        ("%b = exponential(%x) : f32[2,3]  # m.py:9 other", "b"),
        ("%b = sine(%x) : f32[2,3]  # m.py:9 mlp", "b"),
        ("%b = sine(%x) : f32[2,3]  # m.py:9 other", None),
        ("%q = exponential(%x) : f32[2,3]  # m.py:4 mlp", "b"),
        ("%q = sine(%x) : f32[2,3]  # m.py:4 mlp", None),
        ("%q = exponential(%x) : f32[2,3]  # m.py:4 other", None),
        ("%q = exponential(%x) : f32[2,3]", None),
        # A name that is not an evidence file does not hide the line.
        ("%c = exponential(%x) : f32[2,3]  # m.py:4 mlp", "b"),
    ],
)
def test_a_counterpart_has_the_name_or_the_line(line: str, counterpart: str | None):
    right = traced(line, f"return y = {line.split()[0]}")
    found = matching(LEFT, right).by_origin(named(right, line.split()[0][1:]))
    assert (found.name if found is not None else None) == counterpart


def test_arguments_are_those_that_are_given_and_no_others():
    right = traced("%b = exponential(%x) : f32[2,3]", "return y = %b")
    x = named(right, "x")
    assert matching(LEFT, right).by_origin(x) is named(LEFT, "x")
    assert ValueMatching(LEFT, right, {}, 1e-6).by_origin(x) is None


def test_a_line_that_makes_two_values_alike_is_no_evidence():
    twice = [f"%{name} = exponential(%x) : f32[2,3]  # m.py:4 mlp" for name in ("p", "q")]
    right = traced(*twice, "%r = add(%p, %q) : f32[2,3]", "return y = %r")
    assert matching(LEFT, right).by_origin(named(right, "p")) is None


def test_the_last_value_of_a_line_goes_with_the_composite_of_that_line():
    left = traced("%s = silu(%x) : f32[2,3]  # m.py:7 act", "return y = %s")
    right = traced(
        "%l = logistic(%x) : f32[2,3]  # m.py:7 act",
        "%m = multiply(%x, %l) : f32[2,3]  # m.py:7 act",
        "return y = %m",
    )
    found = matching(left, right)
    assert found.by_origin(named(right, "m")) is named(left, "s")
    assert found.by_origin(named(right, "l")) is None
    back = matching(right, left)
    assert back.by_origin(named(left, "s")) is named(right, "m")


def test_numbers_find_the_value_made_by_the_same_kind_of_op():
    left = traced(
        "%p = add(%x, %x) : f32[2,3]",
        "%q = multiply(%x, %x) : f32[2,3]",
        "%r = subtract(%p, %x) : f32[2,3]",
        "return y = %r",
    )
    right = traced(
        "%n = negate(%x) : f32[2,3]",
        "%k = negate(%n) : f32[2,3]",
        "%two = add(%k, %k) : f32[2,3]",
        "return y = %two",
    )
    found = matching(left, right)
    assert found.by_numbers(named(right, "two")) is named(left, "p")
    # x itself and x + x - x have its numbers, and no op of this kind has made either.
    assert found.by_numbers(named(right, "k")) in (named(left, "x"), named(left, "r"))
    assert found.by_numbers(named(right, "n")) is None
    assert found.same(named(left, "r"), named(right, "k"))
    assert found.same(named(left, "p"), named(right, "k")) is False


def test_a_small_wrong_element_beside_large_ones_is_not_the_same():
    """Close to the largest numbers, and not to its own size."""
    sizes = "%k = constant() value=f32[2,3](1.0,1.0,1e-10,1.0,1.0,1.0) : f32[2,3]"
    wrong = sizes.replace("1e-10", "-1e-10")
    lines = ("%y = multiply(%x, %k) : f32[2,3]", "return y = %y")
    left, right, other = (traced(one, *lines) for one in (sizes, sizes, wrong))
    assert matching(left, right).same(named(left, "y"), named(right, "y")) is True
    assert matching(left, other).same(named(left, "y"), named(other, "y")) is False


def test_operands_find_the_op_that_reads_the_counterparts():
    right = traced("%a = negate(%x) : f32[2,3]", "%z = exponential(%a) : f32[2,3]", "return y = %z")
    found = matching(LEFT, right)
    agrees = {named(right, "a"): named(LEFT, "a")}
    wanted, value = named(LEFT, "b"), named(right, "z")
    assert found.by_operands(value, agrees, []) is wanted
    assert found.by_operands(value, agrees, [wanted]) is None
    assert found.by_operands(value, {}, []) is None
    assert found.by_operands(named(right, "x"), agrees, []) is None
