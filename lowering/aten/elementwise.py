"""ATen ops that compute element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32, pred, s32
from graphgen.lowering.aten.call import ATEN, AtenCall, AtenResult, aten, computed_in, wide

_UNARY = {
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sigmoid": "logistic",
    "tanh": "tanh",
    "cos": "cosine",
    "sin": "sine",
    "tan": "tan",
    "erf": "erf",
}
_ROUNDING = {"ceil": "ceil", "floor": "floor", "round": "round_nearest_even"}
_COMPARE = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


def _unary(name: str) -> Callable[[AtenCall], AtenResult]:
    def rule(c: AtenCall) -> AtenResult:
        return c.b.unary(name, c.cast(c.value("self"), c.dtype))

    return rule


def _rounding(name: str) -> Callable[[AtenCall], AtenResult]:
    def rule(c: AtenCall) -> AtenResult:
        x = c.value("self")
        return c.b.unary(name, x) if x.dtype.is_float else x

    return rule


def _comparison(direction: str) -> Callable[[AtenCall], AtenResult]:
    def rule(c: AtenCall) -> AtenResult:
        dtype = computed_in(c.promoted("self", "other"), c.operand("self"), c.operand("other"))
        x, y = c.same(dtype, "self", "other")
        return c.b.compare(x, y, direction)

    return rule


@aten("erfc.default")
def _erfc(c: AtenCall) -> AtenResult:
    """One less the error function, which far from zero loses what is left of it."""
    dtype = wide(c.dtype)
    share = c.b.erf(c.cast(c.value("self"), dtype))
    return c.b.convert(c.b.subtract(c.full(1, dtype, share.shape), share), c.dtype)


for _name, _op in _UNARY.items():
    ATEN[f"{_name}.default"] = _unary(_op)
for _name, _op in _ROUNDING.items():
    ATEN[f"{_name}.default"] = _rounding(_op)
for _name, _direction in _COMPARE.items():
    ATEN[f"{_name}.Tensor"] = ATEN[f"{_name}.Scalar"] = _comparison(_direction)


def wide_unary(c: AtenCall, made: Callable[[Value], Value], name: str = "self") -> Value:
    """A function of one operand, computed in what torch computes in."""
    x = c.cast(c.value(name), c.dtype)
    return c.b.convert(made(c.b.convert(x, wide(c.dtype))), c.dtype)


@aten("log2.default")
def _log2(c: AtenCall) -> AtenResult:
    return wide_unary(c, lambda x: c.b.log(x) * (1 / math.log(2)))


@aten("log10.default")
def _log10(c: AtenCall) -> AtenResult:
    return wide_unary(c, lambda x: c.b.log(x) * (1 / math.log(10)))


@aten("exp2.default")
def _exp2(c: AtenCall) -> AtenResult:
    return wide_unary(c, lambda x: c.b.power(2.0, x))


@aten("reciprocal.default")
def _reciprocal(c: AtenCall) -> AtenResult:
    return wide_unary(c, lambda x: c.b.divide(1.0, x))


@aten("sinh.default")
def _sinh(c: AtenCall) -> AtenResult:
    # (e^x - e^-x) / 2 with e^x - 1, which is exact where x is small.
    grown = c.b.exponential_minus_one
    return wide_unary(c, lambda x: (grown(x) - grown(-x)) * 0.5)


@aten("cosh.default")
def _cosh(c: AtenCall) -> AtenResult:
    return wide_unary(c, lambda x: (c.b.exponential(x) + c.b.exponential(-x)) * 0.5)


@aten("atan.default")
def _atan(c: AtenCall) -> AtenResult:
    return wide_unary(c, lambda x: c.b.atan2(x, 1.0))


@aten("neg.default")
def _neg(c: AtenCall) -> AtenResult:
    return c.b.negate(c.value("self"))


@aten("abs.default")
def _abs(c: AtenCall) -> AtenResult:
    x = c.value("self")
    return x if x.dtype is pred or x.dtype.kind.value == "unsigned" else c.b.abs(x)


@aten("sign.default", "sgn.default")
def _sign(c: AtenCall) -> AtenResult:
    x = c.value("self")
    if x.dtype is pred:
        return x
    if x.dtype.is_float:
        # torch says 0 of NaN.
        zero = c.b.full(0.0, x.type)
        return c.b.select(c.b.compare(x, x, "EQ"), c.b.sign(x), zero)
    return c.b.minimum(x, 1) if x.dtype.kind.value == "unsigned" else c.b.sign(x)


@aten("trunc.default")
def _trunc(c: AtenCall) -> AtenResult:
    x = c.value("self")
    if not x.dtype.is_float:
        return x
    return _toward_zero(c.b, x)


def _toward_zero(b: Builder, x: Value) -> Value:
    return b.select(b.compare(x, b.full(0.0, x.type), "LT"), b.ceil(x), b.floor(x))


@aten("logical_not.default")
def _logical_not(c: AtenCall) -> AtenResult:
    return c.b.not_(c.cast(c.value("self"), pred))


@aten("bitwise_not.default")
def _bitwise_not(c: AtenCall) -> AtenResult:
    return c.b.not_(c.value("self"))


@aten("isnan.default")
def _isnan(c: AtenCall) -> AtenResult:
    x = c.value("self")
    return c.b.compare(x, x, "NE")


@aten("isinf.default")
def _isinf(c: AtenCall) -> AtenResult:
    x = c.value("self")
    if not x.dtype.is_float:
        return c.full(False, pred, x.shape)
    return c.b.compare(c.b.abs(x), c.b.full(math.inf, x.type), "EQ")


@aten("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")
def _add(c: AtenCall) -> AtenResult:
    return _sum(c, "self", "other", minus=c.op.startswith("sub"))


@aten("rsub.Tensor", "rsub.Scalar")
def _rsub(c: AtenCall) -> AtenResult:
    return _sum(c, "other", "self", minus=True)


def _sum(c: AtenCall, first: str, second: str, *, minus: bool) -> Value:
    """``first + alpha * second``, or the difference."""
    alpha, start, more = c.number("alpha", 1), c.operand(first), c.operand(second)
    nothing = not isinstance(more, Value) and more == 0
    if nothing and isinstance(start, Value) and not c.dtype.is_float:
        # transformers counts from a length that is 0; of floats -0.0 + 0 is another number.
        return c.full(start, c.dtype, c.shape)
    if c.dtype is pred:
        return c.b.or_(*c.same(pred, first, second))
    dtype = computed_in(c.dtype, start, more, alpha)
    x, y = c.same(dtype, first, second)
    if alpha != 1:
        y = c.b.multiply(y, c.full(alpha, dtype, y.shape))
    return c.b.convert(c.b.subtract(x, y) if minus else c.b.add(x, y), c.dtype)


@aten("mul.Tensor", "mul.Scalar")
def _mul(c: AtenCall) -> AtenResult:
    if c.dtype is pred:
        return c.b.and_(*c.same(pred, "self", "other"))
    factor = c.operand("other")
    if not isinstance(factor, Value) and factor == 1:
        return c.cast(c.value("self"), c.dtype)
    return _arithmetic(c, "multiply")


def _arithmetic(c: AtenCall, name: str) -> Value:
    """An op of two operands in the result's type."""
    dtype = computed_in(c.dtype, c.operand("self"), c.operand("other"))
    return c.b.convert(c.b.binary(name, *c.same(dtype, "self", "other")), c.dtype)


@aten("div.Tensor", "div.Scalar")
def _div(c: AtenCall) -> AtenResult:
    return _arithmetic(c, "divide")


@aten("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(c: AtenCall) -> AtenResult:
    mode = c.word("rounding_mode")
    if not mode:
        return _arithmetic(c, "divide")
    dtype = computed_in(c.dtype, c.operand("self"), c.operand("other"))
    x, y = c.same(dtype, "self", "other")
    if mode == "floor":
        return c.b.convert(_floored(c.b, x, y), c.dtype)
    quotient = c.b.divide(x, y)
    return c.b.convert(_toward_zero(c.b, quotient) if dtype.is_float else quotient, c.dtype)


@aten("floor_divide.default")
def _floor_divide(c: AtenCall) -> AtenResult:
    return _floored(c.b, *c.same(c.dtype, "self", "other"))


def _floored(b: Builder, x: Value, y: Value) -> Value:
    """The quotient rounded down; of floats as Python computes it, from the exact remainder."""
    rest, differs, zero = _rest(b, x, y)
    if not x.dtype.is_float:
        quotient = b.divide(x, y)
        return b.subtract(quotient, b.convert(differs, x.dtype))
    quotient = b.divide(b.subtract(x, rest), y)
    quotient = b.subtract(quotient, b.convert(differs, x.dtype))
    low = b.floor(quotient)
    # The quotient is whole but for its own rounding.
    above = b.compare(b.subtract(quotient, low), b.full(0.5, low.type), "GT")
    nearest = b.select(above, b.add(low, 1.0), low)
    return b.select(b.compare(y, zero, "EQ"), b.divide(x, y), nearest)


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(c: AtenCall) -> AtenResult:
    """Compute the remainder with the sign of the divisor."""
    dtype = computed_in(c.dtype, c.operand("self"), c.operand("other"))
    b, (x, y) = c.b, c.same(dtype, "self", "other")
    rest, differs, _ = _rest(b, x, y)
    return b.convert(b.select(differs, b.add(rest, y), rest), c.dtype)


def _rest(b: Builder, x: Value, y: Value) -> tuple[Value, Value, Value]:
    """Compute the remainder, whether its sign differs from the divisor's, and zeros."""
    zero = b.full(0, y.type)
    rest = b.remainder(x, y)
    differs = b.and_(
        b.compare(rest, zero, "NE"), b.xor(b.compare(rest, zero, "LT"), b.compare(y, zero, "LT"))
    )
    return rest, differs, zero


@aten("fmod.Tensor", "fmod.Scalar")
def _fmod(c: AtenCall) -> AtenResult:
    return _arithmetic(c, "remainder")


@aten("pow.Tensor_Tensor", "pow.Scalar")
def _pow(c: AtenCall) -> AtenResult:
    dtype = wide(c.dtype)
    base, exponent = c.same(dtype, "self", "exponent")
    return c.b.convert(c.b.power(base, exponent), c.dtype)


@aten("pow.Tensor_Scalar")
def _pow_number(c: AtenCall) -> AtenResult:
    """Small powers are products, as they are in torch."""
    x, exponent = c.cast(c.value("self"), c.dtype), c.number("exponent")
    b = c.b
    if exponent == 1:
        return x
    if exponent == 2:
        return b.multiply(x, x)
    if exponent == 3:
        return b.multiply(b.multiply(x, x), x)
    if exponent == 0.5:
        return b.sqrt(x)
    if exponent == -0.5:
        return b.rsqrt(x)
    raised = b.convert(x, wide(c.dtype))
    return b.convert(b.power(raised, c.full(exponent, raised.dtype, x.shape)), c.dtype)


@aten("maximum.default", "minimum.default")
def _extreme(c: AtenCall) -> AtenResult:
    name = c.op.removesuffix(".default")
    if c.dtype is pred:
        return c.b.binary("or" if name == "maximum" else "and", *c.same(pred, "self", "other"))
    return c.b.binary(name, *c.same(c.dtype, "self", "other"))


@aten("atan2.default")
def _atan2(c: AtenCall) -> AtenResult:
    return c.b.atan2(*c.same(c.dtype, "self", "other"))


@aten("logical_and.default", "logical_or.default", "logical_xor.default")
def _logical(c: AtenCall) -> AtenResult:
    name = c.op.removeprefix("logical_").removesuffix(".default")
    return c.b.binary(name, *[c.cast(v, pred) for v in _as_they_are(c)])


def _as_they_are(c: AtenCall) -> list[Value]:
    return [c.spread(c.value(name), c.shape) for name in ("self", "other")]


def _bits(name: str) -> Callable[[AtenCall], AtenResult]:
    def rule(c: AtenCall) -> AtenResult:
        return c.b.binary(name, *c.same(c.dtype, "self", "other"))

    return rule


for _name, _op in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor")):
    ATEN[f"{_name}.Tensor"] = ATEN[f"{_name}.Scalar"] = _bits(_op)
ATEN["bitwise_left_shift.Tensor"] = _bits("shift_left")
ATEN["bitwise_right_shift.Tensor"] = _bits("shift_right_arithmetic")
ATEN["__lshift__.Scalar"] = _bits("shift_left")
ATEN["__rshift__.Scalar"] = _bits("shift_right_arithmetic")


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(c: AtenCall) -> AtenResult:
    chosen = c.spread(c.cast(c.value("condition"), pred), c.shape)
    return c.b.select(chosen, *c.same(c.dtype, "self", "other"))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(c: AtenCall) -> AtenResult:
    mask = c.spread(c.value("mask"), c.shape)
    return c.b.select(mask, *c.same(c.dtype, "value", "self"))


@aten("clamp.default", "clamp.Tensor", "clamp_min.default", "clamp_max.default")
@aten("clamp_min.Tensor", "clamp_max.Tensor", "hardtanh.default")
def _clamp(c: AtenCall) -> AtenResult:
    low, high = ("min_val", "max_val") if c.op.startswith("hardtanh") else ("min", "max")
    (x,) = c.same(c.dtype, "self")
    if c.given.get(low) is not None:
        x = c.b.maximum(x, *c.same(c.dtype, low))
    if c.given.get(high) is not None:
        x = c.b.minimum(x, *c.same(c.dtype, high))
    return x


@aten("addcmul.default", "addcdiv.default")
def _addcmul(c: AtenCall) -> AtenResult:
    """``self + value * tensor1 * tensor2``, or the quotient."""
    dtype = wide(c.dtype)
    start, x, y = c.same(dtype, "self", "tensor1", "tensor2")
    combined = c.b.multiply(x, y) if c.op.startswith("addcmul") else c.b.divide(x, y)
    scaled = c.b.multiply(combined, c.full(c.number("value", 1), dtype, c.shape))
    return c.b.convert(c.b.add(start, scaled), c.dtype)


@aten("relu.default")
def _relu(c: AtenCall) -> AtenResult:
    return c.b.maximum(c.value("self"), 0)


@aten("leaky_relu.default")
def _leaky_relu(c: AtenCall) -> AtenResult:
    slope = float(c.number("negative_slope", 0.01))

    def leaky(x: Value) -> Value:
        return c.b.select(c.b.compare(x, c.b.full(0.0, x.type), "GT"), x, x * slope)

    return wide_unary(c, leaky)


@aten("elu.default")
def _elu(c: AtenCall) -> AtenResult:
    alpha, scale = float(c.number("alpha", 1)), float(c.number("scale", 1))
    inner = float(c.number("input_scale", 1))

    def elu(x: Value) -> Value:
        low = c.b.exponential_minus_one(x * inner) * (alpha * scale)
        return c.b.select(c.b.compare(x, c.b.full(0.0, x.type), "GT"), x * scale, low)

    return wide_unary(c, elu)


@aten("softplus.default")
def _softplus(c: AtenCall) -> AtenResult:
    beta, threshold = float(c.number("beta", 1)), float(c.number("threshold", 20))

    def softplus(x: Value) -> Value:
        scaled = x * beta
        soft = c.b.log_plus_one(c.b.exponential(scaled)) * (1 / beta)
        return c.b.select(c.b.compare(scaled, c.b.full(threshold, x.type), "GT"), x, soft)

    return wide_unary(c, softplus)


@aten("hardsigmoid.default")
def _hardsigmoid(c: AtenCall) -> AtenResult:
    return wide_unary(c, lambda x: _hard(c.b, x))


@aten("hardswish.default")
def _hardswish(c: AtenCall) -> AtenResult:
    return wide_unary(c, lambda x: x * _hard(c.b, x))


def _hard(b: Builder, x: Value) -> Value:
    return b.minimum(b.maximum(x + 3.0, 0.0), 6.0) * (1 / 6)


@aten("silu.default")
def _silu(c: AtenCall) -> AtenResult:
    x = c.value("self")
    return c.b.silu(x) if _composite(x.dtype) else x * c.b.logistic(x)


@aten("gelu.default")
def _gelu(c: AtenCall) -> AtenResult:
    x, kind = c.value("self"), c.word("approximate", "none")
    if _composite(x.dtype):
        return c.b.gelu(x, kind)
    if kind == "none":
        return x * ((c.b.erf(x * math.sqrt(0.5)) + 1.0) * 0.5)
    return x * c.b.logistic((x + x * x * x * 0.044715) * math.sqrt(8 / math.pi))


def _composite(dtype: DType) -> bool:
    """Test whether a composite, which computes in f32, is as exact as torch."""
    return dtype.is_float and dtype.bits <= f32.bits


def ordinal(c: AtenCall, value: Value) -> Value:
    """Convert booleans to numbers, which have a maximum."""
    return c.b.convert(value, s32) if value.dtype is pred else value
