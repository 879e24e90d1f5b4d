"""Faults of norms: epsilon, variance and weights."""

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
    operand,
)


def epsilon_outside(op: Op, b: Builder) -> Sequence[Value]:
    """The epsilon is added to the root."""
    x, weight = op.operands
    mean = b.mean(b.multiply(x, x), [2], keep=True)
    size = b.add(b.sqrt(mean), op.attrs.number("epsilon"))
    return [b.multiply(b.divide(x, spread(b, size, x)), spread_last(b, weight, x))]


def by_parts(op: Op, b: Builder) -> Sequence[Value]:
    """The norm by its formula."""
    x, weight = op.operands
    mean = b.mean(b.multiply(x, x), [2], keep=True)
    size = b.sqrt(b.add(mean, op.attrs.number("epsilon")))
    return [b.multiply(b.divide(x, spread(b, size, x)), spread_last(b, weight, x))]


def spread(b: Builder, value: Value, like: Value) -> Value:
    """[B,S,1] over the last dimension."""
    return b.broadcast_in_dim(b.reshape(value, value.shape[:2]), like.shape, [0, 1])


def spread_last(b: Builder, value: Value, like: Value) -> Value:
    """[E] over the first dimensions."""
    return b.broadcast_in_dim(value, like.shape, [2])


def larger_epsilon(op: Op, b: Builder) -> Sequence[Value]:
    """Ten times the epsilon."""
    epsilon = op.attrs.number("epsilon") * 10
    return b.emit(op.name, op.operands, {**op.attrs, "epsilon": epsilon}).results


def of_fewer(op: Op, b: Builder) -> Sequence[Value]:
    """The variance of a sample: the sum over one less than the number of elements."""
    x, weight, bias = op.operands
    centred = b.subtract(x, spread(b, b.mean(x, [2], keep=True), x))
    total = b.sum(b.multiply(centred, centred), [2], keep=True)
    variance = b.multiply(total, 1.0 / 7.0)
    size = b.sqrt(b.add(variance, op.attrs.number("epsilon")))
    normed = b.multiply(b.divide(centred, spread(b, size, x)), spread_last(b, weight, x))
    return [b.add(normed, spread_last(b, bias, x))]


def by_mean_of_squares(op: Op, b: Builder) -> Sequence[Value]:
    """The variance as mean(x^2) - mean(x)^2, which cancels where the mean is large."""
    x, weight, bias = op.operands
    mean = b.mean(x, [2], keep=True)
    squares = b.mean(b.multiply(x, x), [2], keep=True)
    variance = b.subtract(squares, b.multiply(mean, mean))
    size = b.sqrt(b.add(variance, op.attrs.number("epsilon")))
    centred = b.subtract(x, spread(b, mean, x))
    normed = b.multiply(b.divide(centred, spread(b, size, x)), spread_last(b, weight, x))
    return [b.add(normed, spread_last(b, bias, x))]


def without_weight_of_one(op: Op, b: Builder) -> Sequence[Value]:
    """The weight of one element is left out."""
    x, weight = op.operands
    at = b.iota(s32, weight.shape, 0)
    one = b.full(1.0, weight.type)
    kept = b.select(b.compare(at, b.full(7, at.type), "EQ"), one, weight)
    return [again(op, b, x, kept)]


X = "f32[2,3,8]"
RMS = ir(f"%y = rms_norm(%x, %w) epsilon=1e-05 : {X}", x=X, w="f32[8]", y=X)
LAYER = ir(f"%y = layer_norm(%x, %w, %c) epsilon=1e-05 : {X}", x=X, w="f32[8]", c="f32[8]", y=X)
FAULTS: tuple[Row, ...] = (
    Fault("epsilon-outside-the-root", RMS, "rms_norm", epsilon_outside, by_parts, rounding=1e-6),
    Fault("larger-epsilon", RMS, "rms_norm", larger_epsilon),
    Fault("one-weight-left-out", RMS, "rms_norm", without_weight_of_one),
    Fault("variance-of-a-sample", LAYER, "layer_norm", of_fewer, rounding=1e-6),
    Fault("variance-by-mean-of-squares", LAYER, "layer_norm", by_mean_of_squares, rounding=1e-6),
    Fault(
        "epsilon-lost-before-a-quotient",
        ir(
            f"%n = layer_norm(%x, %w, %c) epsilon=1e-05 : {X}",
            f"%a = abs(%n) : {X}",
            full("e", 1e-6, X),
            full("o", 1.0, X),
            f"%b = add(%a, %e) : {X}",
            f"%y = divide(%o, %b) : {X}",
            x=X,
            w="f32[8]",
            c="f32[8]",
            y=X,
        ),
        "add",
        operand,
        report="pytorch/pytorch#186577",
        rounding=1e-6,
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
