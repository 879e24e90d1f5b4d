"""The error function as two quotients of polynomials.

W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation
23 (1969): with y = x², ``erf x = x·P(y)/Q(y)`` up to 0.46875, beyond it
``erf x = sign x · (1 - exp(-y)·R(|x|)/S(|x|))``. Both are good to the last digit of double
precision, so the only rounding is that of the program's own type.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import f32

# From the highest power to the lowest; the denominators begin with 1.
_P = (
    1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
    3.20937758913846947e3,
)  # fmt: skip
_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
      2.84423683343917062e3)  # fmt: skip
_R = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
    2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
    1.23033935479799725e3,
)  # fmt: skip
_S = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
_SMALL = 0.46875
# 1 - erf 6 is 2e-17.
_LARGE = 6.0


def _number(b: Builder, value: float, like: Value) -> Value:
    """A constant of more digits than one f32 has: the nearest one, and what is left."""
    (near,) = struct.unpack("<f", struct.pack("<f", value))
    scalar = b.literal(near, f32)
    if value != near:
        scalar = b.binary("add", scalar, b.literal(value - near, f32))
    return b.broadcast_in_dim(scalar, like.shape, ()) if like.shape else scalar


def _polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """By Horner's rule."""
    first, *rest = coefficients
    total = x if first == 1.0 else b.binary("multiply", x, _number(b, first, x))
    for index, coefficient in enumerate(rest):
        if index:
            total = b.binary("multiply", total, x)
        total = b.binary("add", total, _number(b, coefficient, x))
    return total


def error_function(b: Builder, x: Value) -> Value:
    """``erf x`` by one quotient for small numbers and one for the others, computed in f32.

    Args:
        b: where to build.
        x: of a float type that f32 holds.
    """
    wide = b.convert(x, f32)
    square = b.binary("multiply", wide, wide)
    quotient = b.binary("divide", _polynomial(b, square, _P), _polynomial(b, square, _Q))
    small = b.binary("multiply", wide, quotient)
    size = b.binary("minimum", b.unary("abs", wide), _LARGE)
    decay = b.unary("exponential", b.unary("negate", b.binary("multiply", size, size)))
    quotient = b.binary("divide", _polynomial(b, size, _R), _polynomial(b, size, _S))
    rest = b.binary("multiply", decay, quotient)
    large = b.binary("multiply", b.unary("sign", wide), b.binary("subtract", 1.0, rest))
    near = b.compare(b.unary("abs", wide), b.full(_SMALL, wide.type), "LE")
    return b.convert(b.select(near, small, large), x.dtype)
