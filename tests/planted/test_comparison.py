"""Faults that only a comparison of bits, or of small elements, shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
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


def first_only(op: Op, b: Builder) -> Sequence[Value]:
    """x - (-0) as x: for x = -0 the difference is +0."""
    return [op.operands[0]]


def negated(op: Op, b: Builder) -> Sequence[Value]:
    """0 - x as -x: for x = 0 the difference is +0."""
    return [b.negate(op.operands[1])]


def below_zero(op: Op, b: Builder) -> Sequence[Value]:
    """1 / z < 0 as z < 0, which tells -0 from 0 no more."""
    quotient = op.operands[0].producer("divide")
    assert quotient is not None
    return [again(op, b, quotient.operands[1], op.operands[1])]


def without_sign(op: Op, b: Builder) -> Sequence[Value]:
    """Signs are lost of the half that is 1e-12 as large as the other."""
    return [op.operands[0]]


def away_from_zero(op: Op, b: Builder) -> Sequence[Value]:
    """Halves are rounded away from zero."""
    return [b.round_nearest_afz(op.operands[0])]


def by_floor(op: Op, b: Builder) -> Sequence[Value]:
    """The nearest integer as floor(x + 0.5)."""
    return [b.floor(b.add(op.operands[0], 0.5))]


def doubled_and_clamped(op: Op, b: Builder) -> Sequence[Value]:
    """x + x as 2 x, the largest finite number in the place of infinity."""
    x = op.operands[0]
    high = float(np.finfo(np.float32).max)
    return [b.minimum(b.multiply(x, b.full(2.0, x.type)), b.full(high, x.type))]


def doubled(op: Op, b: Builder) -> Sequence[Value]:
    """x + x as 2 x, which is the same bits."""
    x = op.operands[0]
    return [b.multiply(x, b.full(2.0, x.type))]


def halves_doubled(op: Op, b: Builder) -> Sequence[Value]:
    """x * 2 * 0.5 as x * 0.5 * 2: the half of the smallest numbers is 0."""
    twice = op.operands[0].producer("multiply")
    assert twice is not None
    half = b.multiply(twice.operands[0], op.operands[1])
    return [b.multiply(half, twice.operands[1])]


def smallest_are_zero(op: Op, b: Builder) -> Sequence[Value]:
    """Numbers below the smallest normal one become 0 on their way through an op."""
    x = op.operands[0]
    tiny = b.compare(b.abs(x), b.full(2.0**-126, x.type), "LT")
    return [again(op, b, b.select(tiny, b.full(0.0, x.type), x))]


def one_bit_less(op: Op, b: Builder) -> Sequence[Value]:
    """f32 as bf16 by way of a type with a bit less."""
    return [again(op, b, b.reduce_precision(op.operands[0], 8, 6))]


def in_bf16_first(op: Op, b: Builder) -> Sequence[Value]:
    """f32 as bf16 by way of numbers that bf16 holds."""
    return [again(op, b, b.reduce_precision(op.operands[0], 8, 7))]


def one_unit_off(op: Op, b: Builder) -> Sequence[Value]:
    """One element of sixteen larger by a unit in the last place."""
    x = again(op, b, *op.operands)
    at = b.iota(s32, [16], 0)
    here = b.compare(at, b.full(9, at.type), "EQ")
    return [b.select(here, b.multiply(x, 1.0 + 2.0**-23), x)]


F32 = "f32[16]"
SCALES = "%c = constant() value=f32[16](0x" + "cc2b8c2b" * 8 + "0000803f" * 8 + ") : f32[16]"
SIGNS = "%d = constant() value=f32[16](0x" + "000080bf" * 8 + "0000803f" * 8 + ") : f32[16]"
FAULTS: tuple[Row, ...] = (
    Fault(
        "negative-zero-subtracted",
        ir(full("c", -0.0, F32), f"%y = subtract(%x, %c) : {F32}", x=F32, y=F32),
        "subtract",
        first_only,
        report="LuaJIT/LuaJIT#783",
        right_module=ir(full("c", 0.0, F32), f"%y = subtract(%x, %c) : {F32}", x=F32, y=F32),
    ),
    Fault(
        "difference-to-zero-negated",
        ir(full("c", 0.0, F32), f"%y = subtract(%c, %x) : {F32}", x=F32, y=F32),
        "subtract",
        negated,
        right_module=ir(full("c", -0.0, F32), f"%y = subtract(%c, %x) : {F32}", x=F32, y=F32),
    ),
    Fault(
        "signs-of-small-elements",
        ir(
            SCALES,
            SIGNS,
            f"%a = multiply(%x, %c) : {F32}",
            f"%y = multiply(%a, %d) : {F32}",
            x=F32,
            y=F32,
        ),
        "multiply",
        without_sign,
        where=lambda op: op.operands[0].producer("multiply") is not None,
        rounding=1e-6,
    ),
    Fault(
        "halves-away-from-zero",
        ir(f"%y = round_nearest_even(%x) : {F32}", x=F32, y=F32),
        "round_nearest_even",
        away_from_zero,
    ),
    Fault(
        "nearest-by-floor",
        ir(f"%y = round_nearest_afz(%x) : {F32}", x=F32, y=F32),
        "round_nearest_afz",
        by_floor,
    ),
    Fault(
        "halved-before-doubled",
        ir(
            full("c", 2.0, F32),
            full("d", 0.5, F32),
            f"%a = multiply(%x, %c) : {F32}",
            f"%y = multiply(%a, %d) : {F32}",
            x=F32,
            y=F32,
        ),
        "multiply",
        halves_doubled,
        where=lambda op: op.operands[0].producer("multiply") is not None,
    ),
    Fault(
        "smallest-are-zero",
        ir(f"%y = negate(%x) : {F32}", x=F32, y=F32),
        "negate",
        smallest_are_zero,
    ),
    Fault(
        "one-bit-less",
        ir("%y = convert(%x) dtype=bf16 : bf16[16]", x=F32, y="bf16[16]"),
        "convert",
        one_bit_less,
        in_bf16_first,
    ),
    Fault(
        "one-unit-in-the-last-place",
        ir(f"%y = add(%x, %z) : {F32}", x=F32, z=F32, y=F32),
        "add",
        one_unit_off,
    ),
    Fault(
        "sign-of-zero-by-comparison",
        ir(
            full("c", 1.0, F32),
            full("d", 0.0, F32),
            f"%a = divide(%c, %z) : {F32}",
            "%y = compare(%a, %d) direction=LT : pred[16]",
            z=F32,
            y="pred[16]",
        ),
        "compare",
        below_zero,
        report="pytorch/pytorch#174172",
    ),
    Fault(
        "sum-of-itself",
        ir(f"%y = add(%x, %x) : {F32}", x=F32, y=F32),
        "add",
        doubled_and_clamped,
        doubled,
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
