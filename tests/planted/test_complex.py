"""Faults of complex numbers: parts, conjugates, sizes and branch cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    ir,
    name_of,
    rebuilt,
)


def not_conjugated(op: Op, b: Builder) -> Sequence[Value]:
    """The number in the place of its conjugate."""
    real = op.operands[0].producer("real")
    assert real is not None
    return [real.operands[0]]


def size_of_real(op: Op, b: Builder) -> Sequence[Value]:
    """The absolute value of the real part."""
    return [b.abs(b.op("real", op.operands[0]))]


def size_by_squares(op: Op, b: Builder) -> Sequence[Value]:
    """sqrt(re^2 + im^2): NaN for inf + NaN i, and inf where a square overflows."""
    re, im = (b.op(part, op.operands[0]) for part in ("real", "imag"))
    return [b.sqrt(b.add(b.multiply(re, re), b.multiply(im, im)))]


def root_above(op: Op, b: Builder) -> Sequence[Value]:
    """The root as if an imaginary part -0 were +0."""
    x = op.operands[0]
    re, im = (b.op(part, x) for part in ("real", "imag"))
    return [again(op, b, b.op("complex", re, b.add(im, 0.0)))]


def sign_by_squares(op: Op, b: Builder) -> Sequence[Value]:
    """x / |x| with the size by squares, which overflow."""
    x = op.operands[0]
    re, im = (b.op(part, x) for part in ("real", "imag"))
    size = b.sqrt(b.add(b.multiply(re, re), b.multiply(im, im)))
    return [b.divide(x, b.op("complex", size, b.full(0.0, size.type)))]


def parts_of_product(sign: str) -> Callable[[Op, Builder], Sequence[Value]]:
    """The product by its parts, where ``sign`` is that of the second term of the real one."""

    def made(op: Op, b: Builder) -> Sequence[Value]:
        (a, c), (d, e) = ((b.op("real", v), b.op("imag", v)) for v in op.operands)
        real = b.binary(sign, b.multiply(a, d), b.multiply(c, e))
        return [b.op("complex", real, b.add(b.multiply(a, e), b.multiply(c, d)))]

    return made


def imaginary_negated(op: Op, b: Builder) -> Sequence[Value]:
    """The imaginary part of the conjugate."""
    return [b.negate(again(op, b, *op.operands))]


def equal_in_real(op: Op, b: Builder) -> Sequence[Value]:
    """Equal if the real parts are."""
    return [again(op, b, *(b.op("real", value) for value in op.operands))]


def equal_in_both(op: Op, b: Builder) -> Sequence[Value]:
    """Equal if both parts are."""
    both = [again(op, b, *(b.op(part, v) for v in op.operands)) for part in ("real", "imag")]
    return [b.and_(*both)]


C64, F32 = "c64[8]", "f32[8]"
FAULTS: tuple[Row, ...] = (
    Fault(
        "conjugate-dropped",
        ir(
            f"%a = real(%x) : {F32}",
            f"%b = imag(%x) : {F32}",
            f"%n = negate(%b) : {F32}",
            f"%y = complex(%a, %n) : {C64}",
            x=C64,
            y=C64,
        ),
        "complex",
        not_conjugated,
    ),
    Fault("size-of-real-part", ir(f"%y = abs(%x) : {F32}", x=C64, y=F32), "abs", size_of_real),
    Fault(
        "size-by-squares",
        ir(f"%y = abs(%x) : {F32}", x=C64, y=F32),
        "abs",
        size_by_squares,
        report="jax-ml/jax#37817",
        rounding=1e-6,
    ),
    Fault(
        "root-above-the-cut",
        ir(f"%y = sqrt(%x) : {C64}", x=C64, y=C64),
        "sqrt",
        root_above,
        report="jax-ml/jax#39110",
        rounding=1e-6,
    ),
    Fault(
        "sign-by-squares",
        ir(f"%y = sign(%x) : {C64}", x=C64, y=C64),
        "sign",
        sign_by_squares,
        report="tensorflow/tensorflow#60656",
        rounding=1e-6,
    ),
    Fault(
        "product-of-parts",
        ir(f"%y = multiply(%x, %z) : {C64}", x=C64, z=C64, y=C64),
        "multiply",
        parts_of_product("add"),
        rebuilt,
        rounding=1e-6,
    ),
    Fault(
        "imaginary-part-negated",
        ir(f"%y = imag(%x) : {F32}", x=C64, y=F32),
        "imag",
        imaginary_negated,
    ),
    Fault(
        "equal-in-the-real-part",
        ir("%y = compare(%x, %z) direction=EQ : pred[8]", x=C64, z=C64, y="pred[8]"),
        "compare",
        equal_in_real,
        equal_in_both,
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
