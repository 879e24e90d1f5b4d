"""Faults of integers: indices outside, overflow, signs and widths."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s16, s32, u32
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


def sum_of_starts(op: Op, b: Builder) -> Sequence[Value]:
    """A slice of a slice as one slice, whose start is not clamped twice."""
    inner = op.operands[0].producer("dynamic_slice")
    assert inner is not None
    x, first = inner.operands
    return [b.dynamic_slice(x, [b.add(first, op.operands[1])], [1])]


def clamped_starts(op: Op, b: Builder) -> Sequence[Value]:
    """The same with both starts clamped first."""
    inner = op.operands[0].producer("dynamic_slice")
    assert inner is not None
    x, first = inner.operands
    zero = b.literal(0, s32)
    outer = b.clamp(zero, first, b.literal(6, s32))
    return [
        b.dynamic_slice(x, [b.add(outer, b.clamp(zero, op.operands[1], b.literal(3, s32)))], [1])
    ]


def written_at_raw_start(op: Op, b: Builder) -> Sequence[Value]:
    """An update whose part beyond the end is lost, where the start is to be clamped."""
    x, update, start = op.operands
    at = b.add(b.broadcast_in_dim(start, [3], []), b.iota(s32, [3], 0))
    attrs = {
        "update_window_dims": (),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
    }
    return b.emit("scatter", (x, b.reshape(at, [3, 1]), update), attrs).results


def written_at_clamped_start(op: Op, b: Builder) -> Sequence[Value]:
    """The same at the clamped start."""
    x, update, start = op.operands
    kept = b.clamp(b.literal(0, s32), start, b.literal(7, s32))
    return [again(op, b, x, update, kept)]


def half_by_logical_shift(op: Op, b: Builder) -> Sequence[Value]:
    """x / 2 as a shift that fills up with zeros."""
    x = op.operands[0]
    return [b.shift_right_logical(x, b.full(1, x.type))]


def half_by_biased_shift(op: Op, b: Builder) -> Sequence[Value]:
    """x / 2 as a shift of x, or of x + 1 where x is negative."""
    x = op.operands[0]
    sign = b.shift_right_logical(x, b.full(31, x.type))
    return [b.shift_right_arithmetic(b.add(x, sign), b.full(1, x.type))]


def narrowed(op: Op, b: Builder) -> Sequence[Value]:
    """A product computed in half of the bits."""
    x, y = (b.convert(b.convert(value, s16), op.result.dtype) for value in op.operands)
    return [b.convert(b.convert(b.multiply(x, y), s16), op.result.dtype)]


def remainder_of_all(op: Op, b: Builder) -> Sequence[Value]:
    """x % 20 / 2 * 2 % 4 as x % 4."""
    product = op.operands[0].producer("multiply")
    assert product is not None
    quotient = product.operands[0].producer("divide")
    assert quotient is not None
    first = quotient.operands[0].producer("remainder")
    assert first is not None
    return [again(op, b, first.operands[0], op.operands[1])]


def remainder_of_pairs(op: Op, b: Builder) -> Sequence[Value]:
    """The same as x % 20 % 4 without its last bit."""
    (whole,) = remainder_of_all(op, b)
    return [b.subtract(whole, b.remainder(whole, b.full(2, whole.type)))]


def zero_for_no_divisor(op: Op, b: Builder) -> Sequence[Value]:
    """x / 0 is 0."""
    x, y = op.operands
    zero = b.full(0, y.type)
    return [b.select(b.compare(y, zero, "EQ"), zero, again(op, b, x, y))]


def ones_for_no_divisor(op: Op, b: Builder) -> Sequence[Value]:
    """x / 0 is -1."""
    x, y = op.operands
    none = b.compare(y, b.full(0, y.type), "EQ")
    return [b.select(none, b.full(-1, y.type), again(op, b, x, y))]


def negated_instead(op: Op, b: Builder) -> Sequence[Value]:
    """(x << 7) % (x * 127) as -x."""
    shifted = op.operands[0].producer("shift_left")
    assert shifted is not None
    return [b.negate(shifted.operands[0])]


def amount_wraps(op: Op, b: Builder) -> Sequence[Value]:
    """A shift by the last five bits of the amount, as a processor does it."""
    x, amount = op.operands
    return [again(op, b, x, b.and_(amount, b.full(31, amount.type)))]


def amount_limited(op: Op, b: Builder) -> Sequence[Value]:
    """A shift that is zero from 32 on, as unsigned amounts are compared."""
    x, amount = op.operands
    inside = b.compare(b.convert(amount, u32), b.full(32, b.convert(amount, u32).type), "LT")
    return [b.select(inside, again(op, b, x, amount), b.full(0, x.type))]


def counted_from_the_end(op: Op, b: Builder) -> Sequence[Value]:
    """Index -1 is the last block."""
    x, at = op.operands
    below = b.compare(at, b.full(0, at.type), "LT")
    return [again(op, b, x, b.select(below, b.add(at, b.full(6, at.type)), at))]


def none_counted(op: Op, b: Builder) -> Sequence[Value]:
    """Indices beyond the end are -1."""
    x, at = op.operands
    over = b.compare(at, b.full(6, at.type), "GE")
    return [again(op, b, x, b.select(over, b.full(-1, at.type), at))]


def always_greater(op: Op, b: Builder) -> Sequence[Value]:
    """x + 1 > x is true."""
    return [b.compare(op.operands[1], op.operands[1], "EQ")]


def greater_below_the_top(op: Op, b: Builder) -> Sequence[Value]:
    """It is, but for the greatest x."""
    x = op.operands[1]
    return [b.compare(x, b.full(2**31 - 1, x.type), "NE")]


def same_value(op: Op, b: Builder) -> Sequence[Value]:
    """A value before it was narrowed and widened."""
    inner = op.operands[0].producer("convert")
    assert inner is not None
    return [inner.operands[0]]


def twice_shifted(op: Op, b: Builder) -> Sequence[Value]:
    """A value narrowed to 8 bits and widened by two shifts."""
    (x,) = same_value(op, b)
    bits = b.full(24, x.type)
    return [b.shift_right_arithmetic(b.shift_left(x, bits), bits)]


def quotients_added(op: Op, b: Builder) -> Sequence[Value]:
    """(x + y) / 2 as x / 2 + y / 2."""
    total = op.operands[0].producer("add")
    assert total is not None
    return [b.add(*(again(op, b, value, op.operands[1]) for value in total.operands))]


S32 = "s32[16]"
FAULTS: tuple[Row, ...] = (
    Fault(
        "nested-slices",
        ir(
            "%a = dynamic_slice(%x, %i) slice_sizes=[4] : f32[4]",
            "%y = dynamic_slice(%a, %j) slice_sizes=[1] : f32[1]",
            x="f32[10]",
            i="s32[]",
            j="s32[]",
            y="f32[1]",
        ),
        "dynamic_slice",
        sum_of_starts,
        clamped_starts,
        "jax-ml/jax#40849",
        where=lambda op: op.result.shape == (1,),
    ),
    Fault(
        "update-at-raw-start",
        ir(
            "%y = dynamic_update_slice(%x, %z, %i) : f32[10]",
            x="f32[10]",
            z="f32[3]",
            i="s32[]",
            y="f32[10]",
        ),
        "dynamic_update_slice",
        written_at_raw_start,
        written_at_clamped_start,
        "openxla/xla#49120",
    ),
    Fault(
        "half-by-logical-shift",
        ir(full("c", 2, S32), f"%y = divide(%x, %c) : {S32}", x=S32, y=S32),
        "divide",
        half_by_logical_shift,
        half_by_biased_shift,
        "llvm/llvm-project#62200",
    ),
    Fault(
        "narrow-round-trip-dropped",
        ir(
            "%a = convert(%x) dtype=s8 : s8[16]",
            f"%y = convert(%a) dtype=s32 : {S32}",
            x=S32,
            y=S32,
        ),
        "convert",
        same_value,
        twice_shifted,
        "llvm/llvm-project#90296",
        where=lambda op: op.result.dtype is s32,
    ),
    Fault(
        "nested-remainders",
        ir(
            full("c", 20, S32),
            full("d", 2, S32),
            full("e", 4, S32),
            f"%p = remainder(%x, %c) : {S32}",
            f"%q = divide(%p, %d) : {S32}",
            f"%r = multiply(%q, %d) : {S32}",
            f"%y = remainder(%r, %e) : {S32}",
            x=S32,
            y=S32,
        ),
        "remainder",
        remainder_of_all,
        remainder_of_pairs,
        "apache/tvm#10336",
        where=lambda op: op.operands[0].producer("multiply") is not None,
    ),
    Fault(
        "product-in-half-the-bits",
        ir(full("c", 1000, S32), f"%y = multiply(%x, %c) : {S32}", x=S32, y=S32),
        "multiply",
        narrowed,
        report="pytorch/pytorch#175966",
    ),
    Fault(
        "zero-divisor",
        ir(f"%y = divide(%x, %z) : {S32}", x=S32, z=S32, y=S32),
        "divide",
        zero_for_no_divisor,
        ones_for_no_divisor,
        "pytorch/pytorch#178013",
    ),
    Fault(
        "remainder-of-multiples",
        ir(
            full("c", 7, "s8[16]"),
            full("d", 127, "s8[16]"),
            "%p = shift_left(%x, %c) : s8[16]",
            "%q = multiply(%x, %d) : s8[16]",
            "%y = remainder(%p, %q) : s8[16]",
            x="s8[16]",
            y="s8[16]",
        ),
        "remainder",
        negated_instead,
        report="llvm/llvm-project#121584",
    ),
    Fault(
        "shift-amount-wraps",
        ir(f"%y = shift_left(%x, %z) : {S32}", x=S32, z=S32, y=S32),
        "shift_left",
        amount_wraps,
        amount_limited,
    ),
    Fault(
        "index-from-the-end",
        ir("%y = take(%x, %i) dimension=0 : f32[4]", x="f32[6]", i="s32[4]", y="f32[4]"),
        "take",
        counted_from_the_end,
        none_counted,
    ),
    Fault(
        "sum-never-wraps",
        ir(
            full("c", 1, S32),
            f"%a = add(%x, %c) : {S32}",
            "%y = compare(%a, %x) direction=GT : pred[16]",
            x=S32,
            y="pred[16]",
        ),
        "compare",
        always_greater,
        greater_below_the_top,
    ),
    Fault(
        "quotients-added",
        ir(
            full("c", 2, S32),
            f"%a = add(%x, %z) : {S32}",
            f"%y = divide(%a, %c) : {S32}",
            x=S32,
            z=S32,
            y=S32,
        ),
        "divide",
        quotients_added,
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
