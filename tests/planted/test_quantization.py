"""Faults of quantization: rounding, limits, scales, zero points and sums."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f32, s8, s16, s32
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    ir,
    name_of,
)


def limit_of(op: Op) -> float:
    """The largest value."""
    return op.attrs.number("limit")


def scaled(op: Op, b: Builder) -> tuple[Value, Value, Value]:
    """The scale, the scale of each element, and the elements over it."""
    x = op.operands[0]
    largest = b.reduce(b.abs(x), [1], "maximum")
    scale = b.maximum(b.divide(largest, limit_of(op)), 2.0**-126)
    wide = b.broadcast_in_dim(scale, x.shape, [0])
    return scale, wide, b.divide(x, wide)


def narrowed(b: Builder, x: Value) -> Value:
    """Integers as s8, within its range."""
    low, high = (b.full(value, x.type) for value in (-128.0, 127.0))
    return b.convert(b.minimum(b.maximum(x, low), high), s8)


def away_from_zero(op: Op, b: Builder) -> Sequence[Value]:
    """Halves of a step are rounded away from zero."""
    scale, _, steps = scaled(op, b)
    return [narrowed(b, b.round_nearest_afz(steps)), scale]


def to_even(op: Op, b: Builder) -> Sequence[Value]:
    """Steps are rounded to the nearest, halves to the even one."""
    scale, _, steps = scaled(op, b)
    return [narrowed(b, b.round_nearest_even(steps)), scale]


def truncated(op: Op, b: Builder) -> Sequence[Value]:
    """Steps are truncated."""
    scale, _, steps = scaled(op, b)
    return [narrowed(b, steps), scale]


def larger_limit(op: Op, b: Builder) -> Sequence[Value]:
    """The largest value is 128 steps, of which the type holds 127."""
    return b.emit(op.name, op.operands, {**op.attrs, "limit": 128.0}).results


def scale_of_neighbour(op: Op, b: Builder) -> Sequence[Value]:
    """A row with the scale of the row before it."""
    values, scale = op.operands
    moved = b.concatenate([b.slice_dim(scale, 0, 3, 4), b.slice_dim(scale, 0, 0, 3)], 0)
    return [again(op, b, values, moved)]


def by_product(op: Op, b: Builder) -> Sequence[Value]:
    """Values times scales."""
    values, scale = op.operands
    return [
        b.multiply(
            b.convert(values, f32), b.broadcast_in_dim(b.reshape(scale, [4]), values.shape, [0])
        )
    ]


def without_zero_point(op: Op, b: Builder) -> Sequence[Value]:
    """The zero points are left out."""
    return [again(op, b, *op.operands[:2])]


def zero_point_in_8_bits(op: Op, b: Builder) -> Sequence[Value]:
    """Values and zero points are subtracted in 8 bits, where the difference wraps around."""
    values, scale, zeros = op.operands
    difference = b.subtract(values, b.broadcast_in_dim(b.reshape(zeros, [4]), values.shape, [0]))
    return [again(op, b, difference, scale)]


def with_wide_difference(op: Op, b: Builder) -> Sequence[Value]:
    """The difference in 32 bits, times scales."""
    values, scale, zeros = (b.convert(v, f32) if n != 1 else v for n, v in enumerate(op.operands))
    low = b.broadcast_in_dim(b.reshape(zeros, [4]), values.shape, [0])
    wide = b.broadcast_in_dim(b.reshape(scale, [4]), values.shape, [0])
    return [b.multiply(b.subtract(values, low), wide)]


def sum_in_16_bits(op: Op, b: Builder) -> Sequence[Value]:
    """A product of 8-bit numbers summed in 16 bits."""
    x, y = op.operands
    columns = b.broadcast_in_dim(x, [2, 3, 64], [0, 2])
    rows = b.broadcast_in_dim(y, [2, 3, 64], [1, 2])
    product = b.multiply(b.convert(columns, s16), b.convert(rows, s16))
    return [b.convert(b.reduce(product, [2], "add"), s32)]


def sum_in_32_bits(op: Op, b: Builder) -> Sequence[Value]:
    """The same in 32 bits."""
    x, y = op.operands
    columns = b.broadcast_in_dim(x, [2, 3, 64], [0, 2])
    rows = b.broadcast_in_dim(y, [2, 3, 64], [1, 2])
    return [b.reduce(b.multiply(b.convert(columns, s32), b.convert(rows, s32)), [2], "add")]


X, Q = "f32[4,8]", "s8[4,8]"
QUANTIZED = ir(
    "%y, %s = quantize(%x) dtype=s8 dimensions=[1] limit=127.0 : s8[4,8], f32[4]",
    x=X,
    y=Q,
    outputs=("y", "s : f32[4]"),
)
RESTORED = ir(f"%y = dequantize(%x, %s) block=[1,8] dtype=f32 : {X}", x=Q, s="f32[4,1]", y=X)
SHIFTED = ir(
    f"%y = dequantize(%x, %s, %z) block=[1,8] dtype=f32 : {X}", x=Q, s="f32[4,1]", z="s8[4,1]", y=X
)
PRODUCT = ir(
    "%y = dot_general(%x, %z) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=s32 "
    ": s32[2,3]",
    x="s8[2,64]",
    z="s8[3,64]",
    y="s32[2,3]",
)
FAULTS: tuple[Row, ...] = (
    Fault(
        "half-a-step-away-from-zero",
        QUANTIZED,
        "quantize",
        away_from_zero,
        to_even,
        "tenstorrent/tt-metal#56525",
    ),
    Fault(
        "steps-truncated", QUANTIZED, "quantize", truncated, to_even, "tenstorrent/tt-metal#51304"
    ),
    Fault("limit-of-128", QUANTIZED, "quantize", larger_limit),
    Fault("scale-of-the-neighbour", RESTORED, "dequantize", scale_of_neighbour, by_product),
    Fault("zero-point-left-out", SHIFTED, "dequantize", without_zero_point, with_wide_difference),
    Fault(
        "zero-point-in-8-bits", SHIFTED, "dequantize", zero_point_in_8_bits, with_wide_difference
    ),
    Fault("sum-in-16-bits", PRODUCT, "dot_general", sum_in_16_bits, sum_in_32_bits),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
