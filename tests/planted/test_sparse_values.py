"""Faults that are wrong for few numbers, and not for the ends of their type."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f32, f64, s32, u16, u32, u64
from tests.planted.faults import Fault, Row, assert_blamed, assert_right, full, ir, name_of

U16, U32, F32 = "u16[8]", "u32[8]", "f32[8]"


def sevenths_by_rounded_factor(op: Op, b: Builder) -> Sequence[Value]:
    """x / 7 as x times 2^32 / 7 rounded up: one too much for a seventh of the large numbers."""
    x = b.convert(op.operands[0], u64)
    product = b.multiply(x, b.full(0x24924925, x.type))
    return [b.convert(b.shift_right_logical(product, b.full(32, x.type)), u32)]


def sevenths_in_64_bits(op: Op, b: Builder) -> Sequence[Value]:
    """The same quotient of wider numbers."""
    x, y = (b.convert(value, u64) for value in op.operands)
    return [b.convert(b.divide(x, y), u32)]


def tenths_by(factor: int, bits: int, op: Op, b: Builder) -> Sequence[Value]:
    """x / 10 as a product, moved down."""
    x = b.convert(op.operands[0], u32)
    product = b.multiply(x, b.full(factor, x.type))
    return [b.convert(b.shift_right_logical(product, b.full(bits, x.type)), u16)]


def tenths_by_small_factor(op: Op, b: Builder) -> Sequence[Value]:
    """By 6554 / 2^16: one too much from 43,699 on, for a tenth of the numbers."""
    return tenths_by(6554, 16, op, b)


def tenths_by_large_factor(op: Op, b: Builder) -> Sequence[Value]:
    """By 52429 / 2^19, which is right for all of 16 bits."""
    return tenths_by(52429, 19, op, b)


def remainder_by_f32(op: Op, b: Builder) -> Sequence[Value]:
    """x - y * (x / y) with the quotient in f32, which rounds up to a whole number."""
    x, y = op.operands
    quotient = b.convert(b.divide(b.convert(x, f32), b.convert(y, f32)), u32)
    return [b.subtract(x, b.multiply(quotient, y))]


def remainder_by_f64(op: Op, b: Builder) -> Sequence[Value]:
    """The same with the quotient in f64, which holds all numbers of 32 bits."""
    x, y = op.operands
    quotient = b.convert(b.divide(b.convert(x, f64), b.convert(y, f64)), u32)
    return [b.subtract(x, b.multiply(quotient, y))]


def rounded_by_half(op: Op, b: Builder) -> Sequence[Value]:
    """floor(|x| + 0.5) with the sign of x: 0.49999997 and odd numbers above 2^23 are rounded up."""
    x = op.operands[0]
    return [b.multiply(b.sign(x), b.floor(b.add(b.abs(x), b.full(0.5, x.type))))]


def rounded_by_rest(op: Op, b: Builder) -> Sequence[Value]:
    """floor(|x|), and 1 more where at least a half is left, with the sign of x."""
    x = op.operands[0]
    down = b.floor(b.abs(x))
    rest = b.compare(b.subtract(b.abs(x), down), b.full(0.5, x.type), "GE")
    up = b.add(down, b.full(1.0, x.type))
    return [b.multiply(b.sign(x), b.select(rest, up, down))]


def equal_by_bits(op: Op, b: Builder) -> Sequence[Value]:
    """x = y where their bits are equal: not of two zeros, but of NaN."""
    x, y = (b.bitcast_convert(value, s32) for value in op.operands)
    return [b.compare(x, y, "EQ")]


def equal_by_order(op: Op, b: Builder) -> Sequence[Value]:
    """x <= y and x >= y."""
    x, y = op.operands
    return [b.and_(b.compare(x, y, "LE"), b.compare(x, y, "GE"))]


def power_as_root(op: Op, b: Builder) -> Sequence[Value]:
    """x ^ 0.5 as a root, which is NaN of -inf and -0 of -0."""
    return [b.sqrt(op.operands[0])]


def power_as_guarded_root(op: Op, b: Builder) -> Sequence[Value]:
    """The root of x + 0, infinite where x is."""
    x = op.operands[0]
    lowest = b.compare(x, b.full(float("-inf"), x.type), "EQ")
    root = b.sqrt(b.add(x, b.full(0.0, x.type)))
    return [b.select(lowest, b.full(float("inf"), x.type), root)]


FAULTS: list[Row] = [
    Fault(
        "division-by-rounded-factor",
        ir(full("c", 7, U32), f"%y = divide(%x, %c) : {U32}", x=U32, y=U32),
        "divide",
        sevenths_by_rounded_factor,
        sevenths_in_64_bits,
        "dotnet/runtime#37570",
    ),
    Fault(
        "division-of-16-bits",
        ir(full("c", 10, U16), f"%y = divide(%x, %c) : {U16}", x=U16, y=U16),
        "divide",
        tenths_by_small_factor,
        tenths_by_large_factor,
    ),
    Fault(
        "remainder-by-narrow-quotient",
        ir(full("c", 1000003, U32), f"%y = remainder(%x, %c) : {U32}", x=U32, y=U32),
        "remainder",
        remainder_by_f32,
        remainder_by_f64,
        "colobot/colobot#1271",
    ),
    Fault(
        "rounded-by-adding-a-half",
        ir(f"%y = round_nearest_afz(%x) : {F32}", x=F32, y=F32),
        "round_nearest_afz",
        rounded_by_half,
        rounded_by_rest,
        "luanti-org/luanti#14755",
    ),
    Fault(
        "equal-by-bits",
        ir("%y = compare(%x, %z) direction=EQ : pred[8]", x=F32, z=F32, y="pred[8]"),
        "compare",
        equal_by_bits,
        equal_by_order,
    ),
    Fault(
        "power-as-root",
        ir(full("c", 0.5, F32), f"%y = power(%x, %c) : {F32}", x=F32, y=F32),
        "power",
        power_as_root,
        power_as_guarded_root,
        "llvm/llvm-project#205592",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
