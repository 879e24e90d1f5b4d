"""NumPy rules of elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphgen.eval.arithmetic import (
    NUMPY,
    Arithmetic,
    Array,
    ends,
    is_integer,
    name_of,
    widened,
)
from graphgen.eval.registry import eval_rule
from graphgen.ir import Attrs
from graphgen.ir.dtype import DTYPES, complex_of, pred


def _unary(name: str, function: Callable[[Array], Array]) -> None:
    """Register ``function`` of one operand, computed in the accumulator's type."""

    @eval_rule(name)
    def rule(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
        wide = widened(x[0])
        return np.asarray(function(wide), wide.dtype).astype(x[0].dtype, copy=False)


def _binary(name: str, function: Callable[[Array, Array], Array]) -> None:
    """Register ``function`` of two operands, computed in the widened type."""

    @eval_rule(name)
    def rule(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
        found = np.asarray(function(widened(x[0]), widened(x[1])))
        return found.astype(x[0].dtype, copy=False)


def logistic(x: Array) -> Array:
    """1 / (1 + e^-x) without overflow."""
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


@eval_rule("divide")
def _divide(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    a, b = map(widened, x)
    if not is_integer(a.dtype):
        return np.asarray(a / b).astype(x[0].dtype, copy=False)
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    floor = a // safe
    # Rounded down, but toward zero is wanted; no abs, since that of the lowest integer overflows.
    quotient = floor + ((floor * safe != a) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, np.asarray(-1).astype(a.dtype), quotient).astype(x[0].dtype)


@eval_rule("clamp")
def _clamp(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    low, operand, high = map(widened, x)
    return np.asarray(np.minimum(np.maximum(operand, low), high)).astype(x[1].dtype)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


@eval_rule("compare")
def _compare(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return _COMPARE[attrs.text("direction")](widened(x[0]), widened(x[1]))


@eval_rule("convert")
def _convert(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    dtype = attrs.element("dtype")
    if x[0].dtype.kind == "c" and not dtype.is_complex:
        x = [x[0] != 0 if dtype is pred else real_part(x[0])]
    if dtype.is_integer and not (is_integer(x[0].dtype) or x[0].dtype.kind == "b"):
        unrounded = how.quantized(x[0], dtype)
        if unrounded is not None:
            return unrounded
        return _saturated(x[0].astype(np.float64), how.dtype(dtype))
    # Between types of few bits only by way of a wider one.
    return how.round(widened(x[0]), dtype)


@eval_rule("round_nearest_even")
def _round_nearest_even(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return how.whole(widened(x[0])).astype(x[0].dtype)


def _saturated(x: Array, dtype: np.dtype[Any]) -> Array:
    """Floats as integers: toward zero, beyond the range its nearest end, NaN as 0."""
    low, high = ends(dtype)
    inside = (x > float(low)) & (x < float(high))
    out = np.where(inside, x, 0.0).astype(dtype)
    return np.where(x >= float(high), high, np.where(x <= float(low), low, out)).astype(dtype)


def _sign(x: Array) -> Array:
    # NumPy's sign of -0 is +0; and of an unsigned type there is none.
    return np.where(x == 0, x, np.sign(x))


def _away_from_zero(x: Array) -> Array:
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def erf(x: Array) -> Array:
    """The error function, in double precision and then in the type of x."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x.astype(np.float64)), x.dtype)


def real_part(x: Array) -> Array:
    """The real parts of complex numbers; floats themselves."""
    return np.real(x)


def imaginary_part(x: Array) -> Array:
    """The imaginary parts of complex numbers; zeros for floats."""
    return np.imag(x)


def _parts_type(x: Array, like: Array) -> Array:
    """``x`` in the type of ``like``, or of its parts."""
    return x if like.dtype.kind == "c" else x.astype(like.dtype)


@eval_rule("complex")
def _complex(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    kind = NUMPY[complex_of(DTYPES[name_of(x[0].dtype)]).name]
    # Side by side in memory: adding the parts would make NaN of an infinite one.
    return np.stack(x, -1).view(kind)[..., 0]


@eval_rule("remainder")
def _remainder(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    a, b = map(widened, x)
    if not is_integer(a.dtype):
        return np.fmod(a, b).astype(x[0].dtype)
    rest = np.fmod(a, np.where(b == 0, 1, b).astype(b.dtype))
    return np.where(b == 0, a, rest).astype(x[0].dtype)


@eval_rule("power")
def _power(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    base, exponent = map(widened, x)
    if base.dtype.kind == "c":
        return _complex_power(base, exponent).astype(x[0].dtype)
    if not is_integer(base.dtype):
        return _float_power(base, exponent).astype(x[0].dtype)
    # Squared again and again, which wraps around as multiplying does.
    out, left = np.ones_like(base), np.where(exponent < 0, 0, exponent).astype(exponent.dtype)
    factor = base.copy()
    for _ in range(8 * left.dtype.itemsize):
        out = np.where(left & 1, out * factor, out)
        factor, left = factor * factor, left >> 1
    # Below the exponent 0 only 1 and -1 have a whole power; XLA makes the others 0.
    unit = np.where(base == 1, 1, np.where(base == -1, np.where(exponent & 1, -1, 1), 0))
    return np.where(exponent < 0, unit, out).astype(x[0].dtype)


def _float_power(base: Array, exponent: Array) -> Array:
    """Powers as C's ``pow`` of f64 has them, on every processor and in every layout of exponents.

    NumPy's f32 powers are off by up to 4 units in the last place with AVX-512. It takes the square,
    the root or the reciprocal where one exponent is repeated by a stride of 0, as in an array of
    one number: last bits differ, and the root of -0 is -0, of -inf NaN.
    """
    shape = np.broadcast_shapes(base.shape, exponent.shape)
    pairs = [np.broadcast_to(each, shape).astype(np.float64).ravel() for each in (base, exponent)]
    if pairs[0].size == 1:
        pairs = [np.repeat(each, 2) for each in pairs]
    return np.power(*pairs)[: math.prod(shape)].reshape(shape)


def _complex_power(base: Array, exponent: Array) -> Array:
    """Powers of complex numbers; those of real ones that are not negative are real, as 1 ** inf."""
    sizes, times = np.real(base), np.real(exponent)
    real = (np.imag(base) == 0) & (sizes >= 0) & (np.imag(exponent) == 0)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        plain = np.power(np.where(real, sizes, 1), np.where(real, times, 1))
        return np.where(real, plain, np.power(base, exponent))


_unary("exponential", np.exp)
_unary("rsqrt", lambda x: 1 / np.sqrt(x))
_unary("logistic", logistic)
_unary("cosine", np.cos)
_unary("sine", np.sin)
_unary("sqrt", np.sqrt)
_unary("cbrt", np.cbrt)
_unary("log", np.log)
_unary("log_plus_one", np.log1p)
_unary("exponential_minus_one", np.expm1)
_unary("tanh", np.tanh)
_unary("tan", np.tan)
_unary("erf", erf)
_unary("ceil", np.ceil)
_unary("floor", np.floor)
_unary("round_nearest_afz", _away_from_zero)
_unary("sign", _sign)
eval_rule("is_finite")(lambda how, attrs, x: np.isfinite(widened(x[0])))
_binary("atan2", np.arctan2)
_unary("negate", np.negative)
eval_rule("abs")(lambda how, attrs, x: _parts_type(np.abs(widened(x[0])), x[0]))
eval_rule("real")(lambda how, attrs, x: real_part(x[0]))
eval_rule("imag")(lambda how, attrs, x: imaginary_part(x[0]))
_binary("add", np.add)
_binary("subtract", np.subtract)
_binary("multiply", np.multiply)
_binary("maximum", np.maximum)
_binary("minimum", np.minimum)
eval_rule("select")(lambda how, attrs, x: np.where(x[0], x[1], x[2]))
