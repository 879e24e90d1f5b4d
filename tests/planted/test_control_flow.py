"""Faults of loops and branches: turns, bounds, numbers outside and values that change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s8, s16
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    ir,
    name_of,
)


def one_turn_less(op: Op, b: Builder) -> Sequence[Value]:
    """A loop in steps of two ends where a whole step does not fit any more."""
    i, n = op.operands
    return [again(op, b, b.add(i, b.full(1, i.type)), n)]


def turns_while_not_reached(op: Op, b: Builder) -> Sequence[Value]:
    """The same bound, from the other side."""
    i, n = op.operands
    return [b.compare(n, i, "GT")]


def one_turn_more(op: Op, b: Builder) -> Sequence[Value]:
    """A loop that runs at its bound, too."""
    i, n = op.operands
    return [b.compare(i, n, "LE")]


def not_less(op: Op, b: Builder) -> Sequence[Value]:
    """The later one of equal numbers wins."""
    x, y = op.operands
    return [b.compare(x, y, "GE")]


def less(op: Op, b: Builder) -> Sequence[Value]:
    """The same comparison, from the other side."""
    x, y = op.operands
    return [b.compare(y, x, "LT")]


def turns_in_8_bits(op: Op, b: Builder) -> Sequence[Value]:
    """The number of turns has 8 bits."""
    i, n, *others = op.operands
    narrow = b.convert(b.convert(n, s8), n.dtype)
    return b.emit(op.name, (i, narrow, *others), dict(op.attrs)).results


def turns_in_16_bits(op: Op, b: Builder) -> Sequence[Value]:
    """It has 16 bits, which are enough for its domain."""
    i, n, *others = op.operands
    narrow = b.convert(b.convert(n, s16), n.dtype)
    return b.emit(op.name, (i, narrow, *others), dict(op.attrs)).results


def first_for_negative(op: Op, b: Builder) -> Sequence[Value]:
    """A branch of a negative number is the first, where it is the last."""
    which, *others = op.operands
    clamped = b.maximum(which, b.full(0, which.type))
    return b.emit(op.name, (clamped, *others), dict(op.attrs)).results


def last_for_beyond(op: Op, b: Builder) -> Sequence[Value]:
    """A branch beyond the last is the last."""
    which, *others = op.operands
    clamped = b.minimum(which, b.full(2, which.type))
    return b.emit(op.name, (clamped, *others), dict(op.attrs)).results


def wrapped_branch(op: Op, b: Builder) -> Sequence[Value]:
    """A branch beyond the last starts again at the first."""
    which, *others = op.operands
    wrapped = b.remainder(which, b.full(3, which.type))
    return b.emit(op.name, (wrapped, *others), dict(op.attrs)).results


def hoisted(op: Op, b: Builder) -> Sequence[Value]:
    """A value that changes in each turn is computed once, of the state before the loop."""
    i, n, x, _ = op.operands
    return b.emit(op.name, (i, n, x, b.tanh(x)), {**op.attrs, "body": "held"}).results


def loop_again(op: Op, b: Builder) -> Sequence[Value]:
    """The loop with a bound of at least 0."""
    i, n, x, y = op.operands
    return b.emit(op.name, (i, b.maximum(n, b.full(0, n.type)), x, y), dict(op.attrs)).results


def branches_swapped(op: Op, b: Builder) -> Sequence[Value]:
    """The branches of a condition in the other order."""
    which, *others = op.operands
    first, second = op.attrs.names("branches")
    return b.emit(op.name, (which, *others), {**op.attrs, "branches": (second, first)}).results


def negated_and_swapped(op: Op, b: Builder) -> Sequence[Value]:
    """The other condition with the branches in the other order."""
    which, x, z = op.operands
    first, second = op.attrs.names("branches")
    return b.emit(op.name, (b.not_(which), z, x), {**op.attrs, "branches": (second, first)}).results


def unary(name: str, op: str) -> str:
    """A function of one op."""
    return f"func @{name} {{\n  arg %x : f32[4]\n  %y = {op}(%x) : f32[4]\n  return y = %y\n}}\n\n"


STEPS = """\
func @below {
  arg %i : s32[]
  arg %n : s32[]
  arg %x : f32[4]
  %p = compare(%i, %n) direction=LT : pred[]
  return p = %p
}

func @step {
  arg %i : s32[]
  arg %n : s32[]
  arg %x : f32[4]
  %c = constant() value=s32[](2) : s32[]
  %j = add(%i, %c) : s32[]
  %z = cosine(%x) : f32[4]
  return i = %j
  return n = %n
  return x = %z
}

"""
LOOP = ir(
    "%i = constant() value=s32[](0) : s32[]",
    "%m = constant() value=s32[](7) : s32[]",
    "%o = constant() value=s32[](-3) : s32[]",
    "%k = clamp(%o, %n, %m) : s32[]",
    "%j, %l, %y = while(%i, %k, %x) condition=below body=step : s32[], s32[], f32[4]",
    n="s32[]",
    x="f32[4]",
    y="f32[4]",
    functions=STEPS,
)
COUNTED = ir(
    "%i = constant() value=s32[](0) : s32[]",
    "%j, %l, %y = while(%i, %n, %x) condition=below body=step : s32[], s32[], f32[4]",
    n="s32[]",
    x="f32[4]",
    y="f32[4]",
    functions=STEPS.replace("%z = cosine(%x)", "%z = add(%x, %x)").replace("](2)", "](1)"),
).replace("input %n : s32[]", "input %n : s32[] domain=[0,300]")
CHOICE = ir(
    "%y = conditional(%i, %x, %x, %x) branches=[one,two,three] takes=[1,1,1] results=[f32[4]] "
    ": f32[4]",
    i="s32[]",
    x="f32[4]",
    y="f32[4]",
    functions=unary("one", "tanh") + unary("two", "cosine") + unary("three", "negate"),
)
EITHER = ir(
    "%y = conditional(%p, %x, %z) branches=[one,two] takes=[1,1] results=[f32[4]] : f32[4]",
    p="pred[]",
    x="f32[4]",
    z="f32[4]",
    y="f32[4]",
    functions=unary("one", "tanh") + unary("two", "cosine"),
)
TURN = """\
func @{name} {{
  arg %i : s32[]
  arg %n : s32[]
  arg %x : f32[4]
  arg %y : f32[4]
  %c = constant() value=s32[](1) : s32[]
  %j = add(%i, %c) : s32[]
  {line}
  %z = add(%x, %{value}) : f32[4]
  return i = %j
  return n = %n
  return x = %z
  return y = %{value}
}}

"""
HOISTED = ir(
    "%i = constant() value=s32[](0) : s32[]",
    "%m = constant() value=s32[](3) : s32[]",
    "%o = constant() value=s32[](-1) : s32[]",
    "%k = clamp(%o, %n, %m) : s32[]",
    "%j, %l, %y, %w = while(%i, %k, %x, %x) condition=below body=turn "
    ": s32[], s32[], f32[4], f32[4]",
    n="s32[]",
    x="f32[4]",
    y="f32[4]",
    functions=STEPS.partition("func @step")[0].replace(
        "  arg %x : f32[4]\n", "  arg %x : f32[4]\n  arg %y : f32[4]\n"
    )
    + TURN.format(name="turn", line="%t = tanh(%x) : f32[4]", value="t")
    + TURN.format(name="held", line="%u = negate(%y) : f32[4]", value="y"),
)
LARGEST = ir(
    "%l = constant() value=f32[](-inf) : f32[]",
    "%n = constant() value=s32[](-1) : s32[]",
    "%y, %k = reduce_by(%x, %i, %l, %n) dimensions=[1] to_apply=larger : f32[3], s32[3]",
    x="f32[3,5]",
    i="s32[3,5]",
    y="f32[3]",
    outputs=("y", "k : s32[3]"),
    functions="""\
func @larger {
  arg %a : f32[]
  arg %i : s32[]
  arg %b : f32[]
  arg %j : s32[]
  %p = compare(%b, %a) direction=GT : pred[]
  %v = select(%p, %b, %a) : f32[]
  %k = select(%p, %j, %i) : s32[]
  return v = %v
  return k = %k
}

""",
)

FAULTS: tuple[Row, ...] = (
    Fault(
        "half-a-step-left-out",
        LOOP,
        "compare",
        one_turn_less,
        turns_while_not_reached,
        "openxla/xla#48454",
        program="below",
    ),
    Fault(
        "one-turn-more", LOOP, "compare", one_turn_more, turns_while_not_reached, program="below"
    ),
    Fault("last-of-equal-ones", LARGEST, "compare", not_less, less, program="larger"),
    Fault("turns-in-8-bits", COUNTED, "while", turns_in_8_bits, turns_in_16_bits),
    Fault(
        "first-branch-for-a-negative-number",
        CHOICE,
        "conditional",
        first_for_negative,
        last_for_beyond,
    ),
    Fault("branch-wraps-around", CHOICE, "conditional", wrapped_branch, last_for_beyond),
    Fault("branches-swapped", EITHER, "conditional", branches_swapped, negated_and_swapped),
    Fault("hoisted-out-of-the-loop", HOISTED, "while", hoisted, loop_again),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
