"""NumPy rules of bitwise ops: logic, shifts, bitcasts, reduced precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import FEW_BITS, Arithmetic, Array, name_of, numpy_dtype, widened
from graphgen.eval.registry import EvalRule, eval_rule
from graphgen.ir import Attrs, DType
from graphgen.ir.dtype import DTYPES, Kind
from graphgen.ir.small_float import FORMATS

_OWN_TYPES = "compare in the program's own types"


@eval_rule("bitcast_convert")
def _bitcast_convert(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    (operand,), dtype = x, attrs.element("dtype")
    if how.carries(operand) or how.carries_pair(operand):
        # With all floats wide, a float's bits are carried along as the float itself.
        return operand
    if (_width(operand), dtype.bits) == (4, 8):
        nibbles = _unsigned(operand)
        return (nibbles[..., 0] | nibbles[..., 1] << np.uint8(4)).view(how.dtype(dtype))
    if _is_of_bytes(operand.dtype, _width(operand)) and _is_of_bytes(
        numpy_dtype(dtype), dtype.bits
    ):
        return _seen_as(operand, dtype).astype(how.dtype(dtype), copy=False)
    old, new = _pairs(operand), dtype.bits // 2
    if new > old.shape[-1]:
        old = old.reshape(*operand.shape[:-1], new)
    parts = old.shape[-1] // new
    out = _from_pairs(old.reshape(*old.shape[:-1], parts, new), dtype)
    return (out[..., 0] if parts == 1 else out).astype(how.dtype(dtype))


def _is_of_bytes(held: np.dtype[Any], bits: int) -> bool:
    """True if NumPy keeps a type of ``bits`` bits in as many, whole bytes."""
    return 8 * held.itemsize == bits


def _seen_as(x: Array, dtype: DType) -> Array:
    """The bytes of an array as elements of another type of whole bytes."""
    kind = numpy_dtype(dtype)
    flat = np.ascontiguousarray(x).reshape(-1).view(kind)
    if kind.itemsize < x.dtype.itemsize:
        return flat.reshape(*x.shape, x.dtype.itemsize // kind.itemsize)
    return flat.reshape(x.shape[:-1] if kind.itemsize > x.dtype.itemsize else x.shape)


def carried_parts(how: Arithmetic, x: Array, shape: Sequence[int]) -> Array:
    """An operand of ``bitcast_convert`` with a result of ``shape``, as the rule carries it along.

    A float in the place of its bits is the first of its parts where they are types of their own,
    and the other parts are 0. Two numbers that are joined, such as those of 4 bits in a byte, are
    the parts of a complex number.

    Raises:
        GraphgenError: GG0403 where more than two numbers are joined.
    """
    if not (how.carries(x) or how.carries_pair(x)) or x.ndim == len(shape):
        return x
    if x.ndim > len(shape):
        return _joined(x)
    parts = np.zeros(shape, how.wide)
    parts[..., 0] = np.real(x)
    if how.carries_pair(x):
        parts[..., 1] = np.imag(x)
    return parts


def _joined(parts: Array) -> Array:
    """One number for the parts along the last dimension."""
    if not np.any(parts[..., 1:]):
        return parts[..., 0]
    if np.any(parts[..., 2:]):
        what = f"{parts.shape[-1]} numbers are joined in one, which are not kept in double"
        raise GraphgenError("GG0403", f"{what} precision", help=_OWN_TYPES)
    return parts[..., 0] + 1j * parts[..., 1]


def _pairs(x: Array) -> Array:
    """The bits of each element in twos, lowest first: [..., n]; no type has an odd number."""
    codes = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    pairs = np.stack([codes >> shift & 3 for shift in (0, 2, 4, 6)], -1)
    return pairs.reshape(*x.shape, 4 * x.dtype.itemsize)[..., : _width(x) // 2]


def _from_pairs(x: Array, dtype: DType) -> Array:
    """The inverse of :func:`_pairs`."""
    filled = np.zeros((*x.shape[:-1], 4 * dtype.bytes), np.uint8)
    filled[..., : x.shape[-1]] = x
    quarters = [filled[..., start::4] << np.uint8(2 * start) for start in range(4)]
    codes = np.bitwise_or.reduce(quarters)
    if dtype.kind is Kind.SIGNED and dtype.bits < 8:
        # NumPy keeps them with their sign in the bits above.
        sign = np.uint8(1 << (dtype.bits - 1))
        codes = (codes ^ sign) - sign
    return np.ascontiguousarray(codes).reshape(-1).view(numpy_dtype(dtype)).reshape(x.shape[:-1])


def _integers(x: Array) -> Array:
    """``x``, unless it is a float, or two, carried along in the place of bits."""
    if x.dtype.kind in "fc":
        raise GraphgenError(
            "GG0403",
            "the program computes with the bits of a float, which are not kept in double precision",
            help=_OWN_TYPES,
        )
    return x


def _unsigned(x: Array) -> Array:
    """The bits of elements as unsigned integers of the same width; fewer than 8 of them in u8."""
    if x.dtype in FEW_BITS:
        return x.astype(np.uint8) & np.uint8((1 << _width(x)) - 1)
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _width(x: Array) -> int:
    """Bits of each element of ``x``."""
    return DTYPES[name_of(x.dtype)].bits


def _as(bits: Array, like: Array) -> Array:
    """Unsigned bits as integers of the type of ``like``."""
    return bits.astype(like.dtype) if like.dtype in FEW_BITS else bits.view(like.dtype)


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
    if x[0].dtype in FEW_BITS:
        sign = 1 << (_width(x[0]) - 1)
        signed = (signed ^ sign) - sign
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
    **{name: (form.exponent, form.mantissa) for name, form in FORMATS.items()},
    "f16": (5, 10),
    "bf16": (8, 7),
    "f32": (8, 23),
    "f64": (11, 52),
}


@eval_rule("reduce_precision")
def _reduce_precision(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    """Rounded on the bits, to nearest even, as XLA does; see its ``reduce-precision``."""
    (operand,) = x
    if how.carries(operand):
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
