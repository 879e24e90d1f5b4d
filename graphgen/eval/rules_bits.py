"""NumPy rules of bitwise ops: logic, shifts, bitcasts, reduced precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import FOUR_BITS, Arithmetic, Array, name_of, numpy_dtype, widened
from graphgen.eval.op_rules import EvalRule, eval_rule
from graphgen.ir import Attrs


@eval_rule("bitcast_convert")
def _bitcast_convert(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    (operand,), dtype = x, attrs.element("dtype")
    if operand.dtype == how.wide:
        # With all floats wide, a float's bits are carried along as the float itself.
        return operand
    old, new = _nibbles(operand), dtype.bits // 4
    if new > old.shape[-1]:
        old = old.reshape(*operand.shape[:-1], new)
    parts = old.shape[-1] // new
    out = _from_nibbles(old.reshape(*old.shape[:-1], parts, new), numpy_dtype(dtype))
    return (out[..., 0] if parts == 1 else out).astype(how.dtype(dtype))


def _nibbles(x: Array) -> Array:
    """The bits of each element in fours, lowest first: [..., n]."""
    if x.dtype in FOUR_BITS:
        return x.astype(np.uint8)[..., None] & 15
    codes = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    halves = np.stack([codes & 15, codes >> 4], -1)
    return halves.reshape(*x.shape, 2 * x.dtype.itemsize)


def _from_nibbles(x: Array, dtype: np.dtype[Any]) -> Array:
    """The inverse of :func:`_nibbles`."""
    if dtype in FOUR_BITS:
        return x[..., 0].astype(dtype)
    codes = np.ascontiguousarray(x[..., 0::2] | x[..., 1::2] << 4).reshape(-1)
    return codes.view(dtype).reshape(x.shape[:-1])


def _integers(x: Array) -> Array:
    """``x``, unless it is a float carried along in the place of its bits."""
    if x.dtype.kind == "f":
        raise GraphgenError(
            "GG0403",
            "the program computes with the bits of a float, which are not kept in double precision",
            help="compare in the program's own types",
        )
    return x


def _unsigned(x: Array) -> Array:
    """The bits of elements as unsigned integers of the same width; 4 of them in u8."""
    if x.dtype in FOUR_BITS:
        return x.astype(np.uint8) & np.uint8(15)
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _width(x: Array) -> int:
    """Bits of each integer of ``x``."""
    return 4 if x.dtype in FOUR_BITS else 8 * x.dtype.itemsize


def _as(bits: Array, like: Array) -> Array:
    """Unsigned bits as integers of the type of ``like``."""
    return bits.astype(like.dtype) if like.dtype in FOUR_BITS else bits.view(like.dtype)


@eval_rule("popcnt")
def _popcnt(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return np.bitwise_count(_unsigned(_integers(x[0]))).astype(x[0].dtype)


@eval_rule("count_leading_zeros")
def _count_leading_zeros(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    bits, size = _unsigned(_integers(x[0])), _width(x[0])
    # Every bit below the first one set is set as well, and what is not set is counted.
    for step in (1, 2, 4, 8, 16, 32):
        if step < size:
            bits = bits | bits >> bits.dtype.type(step)
    return (size - np.bitwise_count(bits)).astype(x[0].dtype)


def _shift(left: bool) -> EvalRule:
    def rule(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
        bits, amount = (_unsigned(_integers(operand)) for operand in x)
        inside = amount < _width(x[0])
        steps = np.where(inside, amount, 0).astype(bits.dtype)
        moved = bits << steps if left else bits >> steps
        return _as(np.where(inside, moved, 0).astype(bits.dtype), x[0])

    return rule


@eval_rule("shift_right_arithmetic")
def _shift_right_arithmetic(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    bits, amount = (_unsigned(_integers(operand)) for operand in x)
    signed = bits.view(np.dtype(f"i{bits.dtype.itemsize}"))
    if x[0].dtype in FOUR_BITS:
        signed = (signed ^ 8) - 8
    # Over the end only the sign is left.
    steps = np.minimum(amount, _width(x[0]) - 1).astype(signed.dtype)
    return _as((signed >> steps).view(bits.dtype), x[0])


def _bitwise(function: Callable[[Array, Array], Array]) -> EvalRule:
    def rule(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
        a, b = (widened(_integers(operand)) for operand in x)
        return np.asarray(function(a, b)).astype(x[0].dtype)

    return rule


@eval_rule("not")
def _not(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return np.invert(widened(_integers(x[0]))).astype(x[0].dtype)


# Bits of the exponent and of the mantissa.
_LAYOUT = {
    "f8e4m3": (4, 3),
    "f8e4m3fn": (4, 3),
    "f8e5m2": (5, 2),
    "f16": (5, 10),
    "bf16": (8, 7),
    "f32": (8, 23),
    "f64": (11, 52),
}


@eval_rule("reduce_precision")
def _reduce_precision(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    """Rounded on the bits, to nearest even, as XLA does; see its ``reduce-precision``."""
    (operand,) = x
    if operand.dtype == how.wide:
        return operand
    exponent, mantissa = _LAYOUT[name_of(operand.dtype)]
    to_exponent, to_mantissa = attrs.integer("exponent_bits"), attrs.integer("mantissa_bits")
    bits = _unsigned(operand).astype(np.uint64)
    if to_mantissa < mantissa:
        last = np.uint64(1 << (mantissa - to_mantissa))
        odd = (bits & last) != 0
        bits = (bits + (last >> np.uint64(1)) - np.uint64(1) + odd.astype(np.uint64)) & ~(
            last - np.uint64(1)
        )
    if to_exponent < exponent:
        bits = _narrowed(bits, exponent, mantissa, to_exponent)
    out = bits.astype(_unsigned(operand).dtype).view(operand.dtype)
    return np.where(np.isnan(operand.astype(np.float64)), operand, out)


def _narrowed(bits: Array, exponent: int, mantissa: int, to_exponent: int) -> Array:
    """Exponents that fewer bits cannot hold become zero or infinity, sign kept."""
    ones = ((1 << exponent) - 1) << mantissa
    bias, to_bias = (1 << (exponent - 1)) - 1, (1 << (to_exponent - 1)) - 1
    found = (bits & np.uint64(ones)) >> np.uint64(mantissa)
    sign = bits & np.uint64(1 << (exponent + mantissa))
    bits = np.where(found > bias + to_bias, sign | np.uint64(ones), bits)
    return np.where(found <= bias - to_bias, sign, bits)


eval_rule("and")(_bitwise(np.bitwise_and))
eval_rule("or")(_bitwise(np.bitwise_or))
eval_rule("xor")(_bitwise(np.bitwise_xor))
eval_rule("shift_left")(_shift(left=True))
eval_rule("shift_right_logical")(_shift(left=False))
