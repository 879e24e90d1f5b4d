"""Counterexamples beyond the values of ordinary calls, and contexts that exclude them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32, u32
from tests.planted.faults import (
    Fault,
    Row,
    assert_blamed,
    assert_right,
    full,
    ir,
    name_of,
    operand,
)


def as_mask(op: Op, b: Builder) -> Sequence[Value]:
    """x % 16 as x & 15."""
    x = op.operands[0]
    return [b.and_(x, b.full(15, x.type))]


def second(op: Op, b: Builder) -> Sequence[Value]:
    """The second operand in the place of the result."""
    return [op.operands[1]]


def inverse_dropped(op: Op, b: Builder) -> Sequence[Value]:
    """An op that undoes the one before it: what that one was given."""
    before = op.operands[0].op
    assert before is not None
    return [before.operands[0]]


def unsigned_compare(op: Op, b: Builder) -> Sequence[Value]:
    """x < c as a comparison of numbers without signs."""
    x, y = (b.convert(value, u32) for value in op.operands)
    return [b.compare(x, y, "LT")]


def half_open(op: Op, b: Builder) -> Sequence[Value]:
    """The ends of the range are compared as one unsigned difference; the upper one is left out."""
    low, x, high = op.operands
    below = b.compare(x, b.broadcast_in_dim(high, x.shape, []), "LT")
    kept = b.select(below, x, b.subtract(b.broadcast_in_dim(high, x.shape, []), 1))
    return [b.maximum(kept, b.broadcast_in_dim(low, x.shape, []))]


S32, F32 = "s32[16]", "f32[16]"
MASKED = (full("c", 16, S32), f"%y = remainder(%x, %c) : {S32}")
# The numbers of a comparison are 0 and 1.
FLAG = ("%p = compare(%z, %x) direction=LT : pred[16]", f"%n = convert(%p) dtype=s32 : {S32}")
BEFORE_16 = (full("c", 16, S32), f"%y = remainder(%n, %c) : {S32}")
RANGE = ir(
    full("c", 0, S32),
    full("d", 256, S32),
    "%p = compare(%x, %c) direction=GE : pred[16]",
    "%q = compare(%x, %d) direction=LT : pred[16]",
    "%y = and(%p, %q) : pred[16]",
    x=S32,
    y="pred[16]",
)

FAULTS: tuple[Row, ...] = (
    Fault(
        "remainder-as-mask",
        ir(*MASKED, x=S32, y=S32),
        "remainder",
        as_mask,
        right_module=ir(*FLAG, *BEFORE_16, x=S32, z=S32, y=S32),
    ),
    Fault(
        "high-clamp-dropped",
        ir(full("c", 100_000, S32), f"%y = minimum(%x, %c) : {S32}", x=S32, y=S32),
        "minimum",
        operand,
        right_module=ir(
            *FLAG, full("c", 100_000, S32), f"%y = minimum(%n, %c) : {S32}", x=S32, z=S32, y=S32
        ),
    ),
    Fault(
        "low-clamp-dropped",
        ir(full("c", -300, S32), f"%y = maximum(%c, %x) : {S32}", x=S32, y=S32),
        "maximum",
        second,
        right_module=ir(
            *FLAG, full("c", -300, S32), f"%y = maximum(%c, %n) : {S32}", x=S32, z=S32, y=S32
        ),
    ),
    Fault(
        "absolute-value-dropped",
        ir(
            full("c", -1, S32),
            f"%a = maximum(%x, %c) : {S32}",
            f"%y = abs(%a) : {S32}",
            x=S32,
            y=S32,
        ),
        "abs",
        operand,
        right_module=ir(
            full("c", 0, S32),
            f"%a = maximum(%x, %c) : {S32}",
            f"%y = abs(%a) : {S32}",
            x=S32,
            y=S32,
        ),
    ),
    Fault(
        "log-of-exponential",
        ir(f"%a = exponential(%x) : {F32}", f"%y = log(%a) : {F32}", x=F32, y=F32),
        "log",
        inverse_dropped,
        report="openxla/xla#42732",
        rounding=1e-6,
    ),
    Fault(
        "root-of-square",
        ir(f"%a = multiply(%x, %x) : {F32}", f"%y = sqrt(%a) : {F32}", x=F32, y=F32),
        "sqrt",
        inverse_dropped,
        rounding=1e-6,
    ),
    Fault(
        "compared-without-sign",
        ir(
            full("c", 300, S32), "%y = compare(%x, %c) direction=LT : pred[16]", x=S32, y="pred[16]"
        ),
        "compare",
        unsigned_compare,
        right_module=ir(
            *FLAG,
            full("c", 300, S32),
            "%y = compare(%n, %c) direction=LT : pred[16]",
            x=S32,
            z=S32,
            y="pred[16]",
        )
        .replace("%p = compare(%z, %x) direction=LT", "%p = is_finite(%x)")
        .replace("%x : s32[16]", "%x : f32[16]"),
        where=lambda op: op.operands[0].dtype is s32,
    ),
    Fault(
        "clamp-without-its-end",
        ir(
            "%l = constant() value=s32[](-5) : s32[]",
            "%h = constant() value=s32[](5000) : s32[]",
            f"%y = clamp(%l, %x, %h) : {S32}",
            x=S32,
            y=S32,
        ),
        "clamp",
        half_open,
    ),
    Fault(
        "lower-end-not-asked",
        RANGE,
        "and",
        second,
        # In its domain the first comparison is always true.
        right_module=RANGE.replace(f"input %x : {S32}", f"input %x : {S32} domain=[0,300]"),
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
