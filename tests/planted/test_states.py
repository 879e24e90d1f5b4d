"""Faults of states of any shape and type, which no rule for language models fits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    full,
    ir,
    name_of,
)


def stated(*lines: str, states: dict[str, str], y: str, keeps: str = "s", **inputs: str) -> str:
    """A program that reads states and hands one back as ``%n``."""
    text = ir(*lines, y=y, **inputs, **states)
    for name, kind in states.items():
        text = text.replace(f"input %{name} : {kind}", f"state %{name} : {kind}")
    return text.replace("  return y = %y\n", f"  return y = %y\n  return {keeps} = %n\n")


def old_state(op: Op, b: Builder) -> Sequence[Value]:
    """The value that a state had before the call."""
    return [op.operands[0]]


def at_next_row(op: Op, b: Builder) -> Sequence[Value]:
    """A row is written one row further on."""
    x, update, start, *others = op.operands
    return [again(op, b, x, update, b.add(start, 1), *others)]


def at_wrapped_row(op: Op, b: Builder) -> Sequence[Value]:
    """A row beyond the last is written over the first."""
    x, update, start, *others = op.operands
    size = x.shape[0]
    assert isinstance(size, int)
    return [again(op, b, x, update, b.remainder(start, b.literal(size, s32)), *others)]


def at_clamped_row(op: Op, b: Builder) -> Sequence[Value]:
    """The row where clamping puts it."""
    x, update, start, *others = op.operands
    size = x.shape[0]
    assert isinstance(size, int)
    row = b.clamp(b.literal(0, s32), start, b.literal(size - 1, s32))
    return [again(op, b, x, update, row, *others)]


def saturating(op: Op, b: Builder) -> Sequence[Value]:
    """A count that stops at the greatest number instead of going on from the lowest."""
    x, one = op.operands
    full_count = b.compare(x, b.full(2**31 - 1, x.type), "EQ")
    return [b.select(full_count, x, again(op, b, x, one))]


def other_state(op: Op, b: Builder) -> Sequence[Value]:
    """The other state of the same type."""
    other = b.function.arg("t")
    assert other is not None
    return [again(op, b, other, *op.operands[1:])]


def real_only(op: Op, b: Builder) -> Sequence[Value]:
    """A complex state without the imaginary part of what is added."""
    x, z = op.operands
    re = b.op("real", z)
    return [again(op, b, x, b.op("complex", re, b.full(0.0, re.type)))]


def heads_reversed(op: Op, b: Builder) -> Sequence[Value]:
    """A cache of four dimensions read with its heads from last to first."""
    return [again(op, b, b.reverse(op.operands[0], [2]))]


# The form of an encoder's cache: rows by the batch, and slots, heads and widths of its own.
CROSS = """\
module @m level=canonical {
  input %tokens : s32[B,S]
  input %positions : s32[B,S]
  input %lengths : s32[B]
  input %seq_ids : s32[B]
  state %encoded : f32[B,12,6,4]
  state %own : f32[B,7,2,4]
  output %y : f32[B,12,6,4]
}

func @main phase=main {
  arg %tokens : s32[B,S]
  arg %positions : s32[B,S]
  arg %lengths : s32[B]
  arg %seq_ids : s32[B]
  arg %encoded : f32[B,12,6,4]
  arg %own : f32[B,7,2,4]
  %y = tanh(%encoded) : f32[B,12,6,4]
  %n = negate(%own) : f32[B,7,2,4]
  return y = %y
  return encoded = %y
  return own = %n
}
"""
ROWS = "f32[5,3]"
WRITES = (
    "%o = constant() value=s32[](0) : s32[]",
    f"%n = dynamic_update_slice(%s, %x, %i, %o) : {ROWS}",
    "%y = reduce(%n) dimensions=[0] kind=add : f32[3]",
)
CACHE = "f32[2,6,4,8]"
FAULTS: tuple[Row, ...] = (
    Fault(
        "row-further-on",
        stated(*WRITES, states={"s": ROWS}, x="f32[1,3]", i="s32[]", y="f32[3]"),
        "dynamic_update_slice",
        at_next_row,
    ),
    Fault(
        "row-wraps-around",
        stated(*WRITES, states={"s": ROWS}, x="f32[1,3]", i="s32[]", y="f32[3]"),
        "dynamic_update_slice",
        at_wrapped_row,
        at_clamped_row,
    ),
    Fault(
        "state-before-the-call",
        stated(
            f"%n = add(%s, %x) : {ROWS}",
            f"%y = negate(%n) : {ROWS}",
            states={"s": ROWS},
            x=ROWS,
            y=ROWS,
        ),
        "add",
        old_state,
    ),
    Fault(
        "count-stops",
        stated(
            full("c", 1, "s32[3]"),
            "%n = add(%s, %c) : s32[3]",
            "%y = negate(%s) : s32[3]",
            states={"s": "s32[3]"},
            y="s32[3]",
        ),
        "add",
        saturating,
    ),
    Fault(
        "two-states-mixed",
        stated(
            f"%n = add(%s, %x) : {ROWS}",
            f"%y = multiply(%t, %x) : {ROWS}",
            f"%z = negate(%s) : {ROWS}",
            states={"s": ROWS, "t": ROWS},
            x=ROWS,
            y=ROWS,
        ).replace("  return s = %n\n", "  return s = %n\n  return t = %z\n"),
        "add",
        other_state,
    ),
    Fault(
        "complex-state",
        stated(
            "%n = add(%s, %x) : c64[4]",
            "%y = imag(%s) : f32[4]",
            states={"s": "c64[4]"},
            x="c64[4]",
            y="f32[4]",
        ),
        "add",
        real_only,
    ),
    Fault(
        "cross-attention-heads",
        stated(
            f"%n = tanh(%s) : {CACHE}",
            "%y = reduce(%s) dimensions=[1,3] kind=add : f32[2,4]",
            states={"s": CACHE},
            y="f32[2,4]",
        ),
        "reduce",
        heads_reversed,
    ),
    Fault("cross-cache-of-symbols", CROSS, "tanh", heads_reversed),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
