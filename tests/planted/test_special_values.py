"""Faults that NaN, infinities, zeros, very large and very small numbers show."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f16, f32
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


def without_square(op: Op, b: Builder) -> Sequence[Value]:
    """The absolute value in the place of the root of a square."""
    size = op.operands[0].op
    assert size is not None
    square = size.operands[0].op
    assert square is not None
    return [b.abs(square.operands[0])]


def lesser_by_select(op: Op, b: Builder) -> Sequence[Value]:
    """min(x, y) as select(x < y, x, y), which loses a NaN of x."""
    x, y = op.operands
    return [b.select(b.compare(x, y, "LT"), x, y)]


def lesser_with_nan(op: Op, b: Builder) -> Sequence[Value]:
    """The same with NaN of either side, and the sign of zero, kept."""
    x, y = op.operands
    return [b.select(b.compare(x, x, "NE"), x, again(op, b, x, y))]


def relu_by_select(op: Op, b: Builder) -> Sequence[Value]:
    """max(x, 0) as select(x > 0, x, 0): NaN becomes 0."""
    x, zero = op.operands
    return [b.select(b.compare(x, zero, "GT"), x, zero)]


def logistic_by_quotient(op: Op, b: Builder) -> Sequence[Value]:
    """e^x / (1 + e^x), which is inf / inf for large x."""
    e = b.exponential(op.operands[0])
    return [b.divide(e, b.add(e, 1.0))]


def logistic_by_negation(op: Op, b: Builder) -> Sequence[Value]:
    """1 / (1 + e^-x)."""
    x = op.operands[0]
    return [b.divide(b.full(1.0, x.type), b.add(b.exponential(b.negate(x)), 1.0))]


def angle_of_nothing(op: Op, b: Builder) -> Sequence[Value]:
    """The angle of the point 0, 0 is NaN."""
    y, x = op.operands
    zero = b.full(0.0, x.type)
    both = b.and_(b.compare(x, zero, "EQ"), b.compare(y, zero, "EQ"))
    return [b.select(both, b.full(float("nan"), x.type), again(op, b, y, x))]


def floor_of_quotient(op: Op, b: Builder) -> Sequence[Value]:
    """The quotient rounded down by floor(x / y), which is one too much just below an integer."""
    difference = op.operands[0].producer("subtract")
    assert difference is not None
    return [b.floor(b.divide(difference.operands[0], op.operands[1]))]


def common_factor(op: Op, b: Builder) -> Sequence[Value]:
    """a x + c x as (a + c) x."""
    first, other = (value.producer("multiply") for value in op.operands)
    assert first is not None
    assert other is not None
    return [b.multiply(b.add(first.operands[0], other.operands[0]), first.operands[1])]


def with_wide_epsilon(op: Op, b: Builder) -> Sequence[Value]:
    """1 / sqrt(v + 1e-9) in f32, where the 1e-9 is 0 in f16."""
    total = op.operands[0].producer("add")
    assert total is not None
    wide = b.add(b.convert(total.operands[0], f32), 1e-9)
    return [b.convert(b.rsqrt(wide), f16)]


def by_reciprocal(op: Op, b: Builder) -> Sequence[Value]:
    """x / y as x * (1 / y), which is inf * x for subnormal y."""
    x, y = op.operands
    return [b.multiply(x, b.divide(b.full(1.0, y.type), y))]


def power_by_logarithm(op: Op, b: Builder) -> Sequence[Value]:
    """x^3 as e^(3 log x): NaN for negative x."""
    x = op.operands[0]
    return [b.exponential(b.multiply(b.log(x), 3.0))]


def truth_of_itself(op: Op, b: Builder) -> Sequence[Value]:
    """x == x is true, but for NaN."""
    x = op.operands[0]
    return [b.broadcast_in_dim(b.literal(True, op.result.dtype), x.shape, [])]


def not_unequal(op: Op, b: Builder) -> Sequence[Value]:
    """x == x is not x != x."""
    x = op.operands[0]
    return [b.not_(b.compare(x, x, "NE"))]


def zero_of_product(op: Op, b: Builder) -> Sequence[Value]:
    """x * 0 is 0, but for inf and NaN."""
    return [op.operands[1]]


def last_of_sorted(op: Op, b: Builder) -> Sequence[Value]:
    """The maximum as the last one of a sort, before which a NaN with a sign stands."""
    x = op.operands[0]
    (ordered,) = b.emit("sort", (x,), {"dimension": 1}).results
    return [b.reshape(b.slice_dim(ordered, 1, 4, 5), [3])]


def last_of_sorted_or_nan(op: Op, b: Builder) -> Sequence[Value]:
    """The same, and NaN where the line has one."""
    (last,) = last_of_sorted(op, b)
    x = op.operands[0]
    nan = b.reduce(b.compare(x, x, "NE"), [1], "or")
    return [b.select(nan, b.full(float("nan"), last.type), last)]


def by_f32(op: Op, b: Builder) -> Sequence[Value]:
    """f64 -> f16 by f32, which rounds twice."""
    return [b.convert(b.convert(op.operands[0], f32), f16)]


def rounded_in_its_type(op: Op, b: Builder) -> Sequence[Value]:
    """The number with the digits of f16, as f16: rounded once for all but subnormal ones."""
    x = op.operands[0]
    normal = b.compare(b.abs(x), b.full(2.0**-13, x.type), "GE")
    rounded = b.convert(b.reduce_precision(x, 5, 10), f16)
    return [b.select(normal, rounded, again(op, b, x))]


F32, F16 = "f32[16]", "f16[16]"
FAULTS: tuple[Row, ...] = (
    Fault(
        "root-of-absolute-square",
        ir(
            f"%a = multiply(%x, %x) : {F32}",
            f"%b = abs(%a) : {F32}",
            f"%y = sqrt(%b) : {F32}",
            x=F32,
            y=F32,
        ),
        "sqrt",
        without_square,
        report="jax-ml/jax#37919",
        rounding=1e-6,
    ),
    Fault(
        "lesser-by-select",
        ir(f"%y = minimum(%x, %z) : {F32}", x=F32, z=F32, y=F32),
        "minimum",
        lesser_by_select,
        lesser_with_nan,
    ),
    Fault(
        "relu-by-select",
        ir(full("c", 0.0, F32), f"%y = maximum(%x, %c) : {F32}", x=F32, y=F32),
        "maximum",
        relu_by_select,
    ),
    Fault(
        "logistic-by-quotient",
        ir(f"%y = logistic(%x) : {F32}", x=F32, y=F32),
        "logistic",
        logistic_by_quotient,
        logistic_by_negation,
        rounding=1e-6,
    ),
    Fault(
        "angle-of-nothing",
        ir(f"%y = atan2(%x, %z) : {F32}", x=F32, z=F32, y=F32),
        "atan2",
        angle_of_nothing,
        report="jax-ml/jax#38681",
    ),
    Fault(
        "floor-of-quotient",
        ir(
            f"%r = remainder(%x, %z) : {F32}",
            f"%a = subtract(%x, %r) : {F32}",
            f"%y = divide(%a, %z) : {F32}",
            x=F32,
            z=F32,
            y=F32,
        ),
        "divide",
        floor_of_quotient,
        report="pytorch/pytorch#197895",
        rounding=1e-6,
    ),
    Fault(
        "common-factor",
        ir(
            f"%a = multiply(%x, %w) : {F32}",
            f"%b = multiply(%z, %w) : {F32}",
            f"%y = add(%a, %b) : {F32}",
            x=F32,
            z=F32,
            w=F32,
            y=F32,
        ),
        "add",
        common_factor,
        report="openxla/xla#41579",
        rounding=1e-6,
    ),
    Fault(
        "epsilon-in-a-wider-type",
        ir(
            full("c", 1e-9, F16),
            f"%a = add(%x, %c) : {F16}",
            f"%y = rsqrt(%a) : {F16}",
            x=F16,
            y=F16,
        ),
        "rsqrt",
        with_wide_epsilon,
        report="pytorch/pytorch#183605",
        rounding=5e-3,
    ),
    Fault(
        "quotient-by-reciprocal",
        ir(f"%y = divide(%x, %z) : {F32}", x=F32, z=F32, y=F32),
        "divide",
        by_reciprocal,
        rounding=1e-6,
    ),
    Fault(
        "power-by-logarithm",
        ir(full("c", 3.0, F32), f"%y = power(%x, %c) : {F32}", x=F32, y=F32),
        "power",
        power_by_logarithm,
        rounding=1e-6,
    ),
    Fault(
        "equal-to-itself",
        ir("%y = compare(%x, %x) direction=EQ : pred[16]", x=F32, y="pred[16]"),
        "compare",
        truth_of_itself,
        not_unequal,
    ),
    Fault(
        "product-with-zero",
        ir(full("c", 0.0, F32), f"%y = multiply(%x, %c) : {F32}", x=F32, y=F32),
        "multiply",
        zero_of_product,
    ),
    Fault(
        "maximum-by-sort",
        ir("%y = reduce(%x) dimensions=[1] kind=maximum : f32[3]", x="f32[3,5]", y="f32[3]"),
        "reduce",
        last_of_sorted,
        last_of_sorted_or_nan,
    ),
    Fault(
        "rounded-twice",
        ir("%y = convert(%x) dtype=f16 : f16[16]", x="f64[16]", y=F16),
        "convert",
        by_f32,
        rounded_in_its_type,
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
