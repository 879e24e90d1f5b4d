"""Faults that a whole line of one number shows: rows of zeros, and rows that are masked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f32, s8
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    full,
    ir,
    name_of,
    operand,
)


def maximum_from_a_number(op: Op, b: Builder) -> Sequence[Value]:
    """A maximum that begins at -1e30, not at -inf."""
    y = again(op, b, *op.operands)
    return [b.maximum(y, b.full(-1e30, y.type))]


def maximum_of_padded(op: Op, b: Builder) -> Sequence[Value]:
    """The maximum of lines that -inf makes longer."""
    low = b.literal(float("-inf"), f32)
    return [again(op, b, b.pad(op.operands[0], low, [0, 0], [0, 4]))]


def quantized(op: Op, b: Builder, least: float) -> Sequence[Value]:
    """A scale for each row, at least ``least``, and the numbers over it."""
    x, kind = op.operands[0], op.results[1].type
    scale = b.divide(b.reduce(b.abs(x), [1], "maximum"), b.full(127.0, kind))
    scale = b.maximum(scale, b.full(least, kind))
    quotient = b.divide(x, b.broadcast_in_dim(scale, x.shape, [0]))
    return [b.convert(b.round_nearest_even(quotient), s8), scale]


def quantized_without_floor(op: Op, b: Builder) -> Sequence[Value]:
    """The scale of a row of zeros is 0."""
    return quantized(op, b, 0.0)


def quantized_by_hand(op: Op, b: Builder) -> Sequence[Value]:
    """That scale is the smallest normal number."""
    return quantized(op, b, 2.0**-126)


def without_guard(op: Op, b: Builder) -> Sequence[Value]:
    """The maximum itself, also where it is -inf."""
    return [op.operands[2]]


def guard_by_floor(op: Op, b: Builder) -> Sequence[Value]:
    """The guard asks whether the maximum is below all finite numbers."""
    _, zero, top = op.operands
    return [b.select(b.compare(top, b.full(-3.4028234663852886e38, top.type), "LT"), zero, top)]


ROWS, SUMS = "f32[2,8]", "f32[2]"


def of_row(name: str, value: str) -> str:
    """A line that repeats a value of each row along it."""
    return f"%{name} = broadcast_in_dim(%{value}) shape=[2,8] dimensions=[0] : {ROWS}\n"


def quotient(*, by: str) -> str:
    """Rows over ``%d``, which is their sum of absolute values with a guard."""
    return ir(
        full("e", 1e-12, SUMS),
        f"%a = abs(%x) : {ROWS}",
        f"%s = reduce(%a) dimensions=[1] kind=add : {SUMS}",
        f"%d = {by}(%s, %e) : {SUMS}",
        of_row("w", "d") + f"%y = divide(%x, %w) : {ROWS}",
        x=ROWS,
        y=ROWS,
    )


def root() -> str:
    """Rows over the root of their sum of squares and of a tiny number."""
    return ir(
        full("e", 1e-30, SUMS),
        f"%q = multiply(%x, %x) : {ROWS}",
        f"%s = reduce(%q) dimensions=[1] kind=add : {SUMS}",
        f"%d = add(%s, %e) : {SUMS}",
        f"%r = rsqrt(%d) : {SUMS}",
        of_row("w", "r") + f"%y = multiply(%x, %w) : {ROWS}",
        x=ROWS,
        y=ROWS,
    )


LOG_SUM = ir(
    full("i", "-inf", SUMS),
    full("o", 0.0, SUMS),
    f"%m = reduce(%x) dimensions=[1] kind=maximum : {SUMS}",
    "%p = compare(%m, %i) direction=EQ : pred[2]",
    f"%k = select(%p, %o, %m) : {SUMS}",
    of_row("w", "k") + f"%d = subtract(%x, %w) : {ROWS}",
    f"%e = exponential(%d) : {ROWS}",
    f"%s = reduce(%e) dimensions=[1] kind=add : {SUMS}",
    f"%l = log(%s) : {SUMS}",
    f"%y = add(%l, %k) : {SUMS}",
    x=ROWS,
    y=SUMS,
)

FAULTS: tuple[Row, ...] = (
    Fault(
        "maximum-from-a-number",
        ir(f"%y = reduce(%x) dimensions=[1] kind=maximum : {SUMS}", x=ROWS, y=SUMS),
        "reduce",
        maximum_from_a_number,
        maximum_of_padded,
    ),
    Fault(
        "scale-without-floor",
        ir(
            f"%q, %y = quantize(%x) dtype=s8 dimensions=[1] limit=127.0 : s8[2,8], {SUMS}",
            x=ROWS,
            y=SUMS,
            outputs=("y", "q : s8[2,8]"),
        ),
        "quantize",
        quantized_without_floor,
        quantized_by_hand,
    ),
    Fault("guard-of-masked-rows", LOG_SUM, "select", without_guard, guard_by_floor),
    Fault("floor-of-a-sum", quotient(by="maximum"), "maximum", operand, rounding=1e-5),
    Fault("tiny-number-below-a-root", root(), "add", operand, rounding=1e-5),
)


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
