"""Elementwise ops: ``result[i] = f(x[i], y[i], ...)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ir.dtype import Kind, complex_of, part_of, pred
from graphgen.ops.attr_types import ELEMENT, choice
from graphgen.ops.opdef import (
    InferError,
    arithmetic_operand,
    attr,
    define,
    float_operand,
    inexact_operand,
    number_operand,
    ordered_operand,
    require,
    same_type,
)
from graphgen.ops.traits import LinearIn, Property, Trait, Types

_TRAITS = (Trait.ELEMENTWISE, Trait.FINITE_AT_ZERO, Trait.DATA_MOVEMENT)


@define("complex", "real imag", traits=(*_TRAITS, LinearIn((0, 1))))
def _complex(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The complex numbers with these real and imaginary parts: c64 of f32, c128 of f64.

    Example:
        %y = complex(%a, %b) : c64[B,4]
    """
    same_type(types)
    try:
        return (tensor(complex_of(types[0].dtype), types[0].shape),)
    except GraphgenError as error:
        raise InferError(error.what, 0) from error


def _part(name: str, doc: str) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        inexact_operand(types)
        return (tensor(part_of(types[0].dtype), types[0].shape),)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%x) : f32[B,4]"
    define(name, "operand", traits=(*_TRAITS, LinearIn((0,))))(infer)


_part("real", "The real part of each element; of floats the element itself.")
_part("imag", "The imaginary part of each element; of floats zero.")


ELEMENTWISE, TRANSCENDENTAL = Trait.ELEMENTWISE, Trait.TRANSCENDENTAL
COMMUTATIVE, ASSOCIATIVE = Trait.COMMUTATIVE, Trait.ASSOCIATIVE
FINITE_AT_ZERO, POSITIVE_DOMAIN = Trait.FINITE_AT_ZERO, Trait.POSITIVE_DOMAIN

COMPARISONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def _signed_operand(types: Sequence[TensorType], index: int = 0) -> None:
    kind = types[index].dtype
    signed = kind.is_float or kind.is_complex or kind.kind is Kind.SIGNED
    require(signed, f"has no signs: {types[index].text}", index)


def _unary(
    name: str, doc: str, check: Callable[[Sequence[TensorType]], None], *traits: Property
) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        check(types)
        return (types[0],)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%x) : f32[B,4]"
    define(name, "operand", traits=(ELEMENTWISE, *traits))(infer)


def _unary_float(name: str, doc: str, *traits: Property) -> None:
    _unary(name, doc, float_operand, *traits)


def _any_operand(types: Sequence[TensorType]) -> None:
    """Accept every element type."""


def _unary_inexact(name: str, doc: str, *traits: Property) -> None:
    _unary(name, doc, inexact_operand, *traits)


Check = Callable[[Sequence[TensorType]], None]


def _binary(name: str, doc: str, *traits: Property, check: Check = arithmetic_operand) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        same_type(types)
        check(types)
        return (types[0],)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%a, %b) : f32[B,4]"
    define(name, "lhs rhs", traits=(ELEMENTWISE, *traits))(infer)


def _counts(operands: Types, results: Types, attrs: Attrs) -> bool:
    """Sums and products of truth values are not linear: 1 + 1 is 1."""
    return results[0].dtype is not pred


def _is_float(operands: Types, results: Types, attrs: Attrs) -> bool:
    """Integer quotients truncate, so a sum of quotients is not the quotient of the sum."""
    return results[0].dtype.is_float or results[0].dtype.is_complex


def _widens_float(operands: Types, results: Types, attrs: Attrs) -> bool:
    """A sum commutes with widening, but not with rounding each term."""
    old, new = operands[0].dtype, results[0].dtype
    return old.is_float and new.is_float and new.bits > old.bits


_unary_inexact("exponential", "e to the power of each element.", TRANSCENDENTAL, FINITE_AT_ZERO)
_unary_inexact(
    "exponential_minus_one",
    "exp(x) - 1 for each element, exact where x is small.",
    TRANSCENDENTAL,
    FINITE_AT_ZERO,
)
_unary_inexact("log", "The natural logarithm of each element.", TRANSCENDENTAL, POSITIVE_DOMAIN)
_unary_inexact(
    "log_plus_one",
    "log(1 + x) for each element, exact where x is small.",
    TRANSCENDENTAL,
    FINITE_AT_ZERO,
    POSITIVE_DOMAIN,
)
_unary_inexact(
    "sqrt",
    "The square root of each element; NaN below 0.",
    TRANSCENDENTAL,
    FINITE_AT_ZERO,
    POSITIVE_DOMAIN,
)
_unary_inexact("rsqrt", "1 / sqrt(x) for each element.", TRANSCENDENTAL, POSITIVE_DOMAIN)
_unary_float(
    "cbrt",
    "The cube root of each element, which has the element's sign.",
    TRANSCENDENTAL,
    FINITE_AT_ZERO,
)
_unary_inexact("logistic", "1 / (1 + exp(-x)) for each element.", TRANSCENDENTAL, FINITE_AT_ZERO)
_unary_inexact("tanh", "The hyperbolic tangent of each element.", TRANSCENDENTAL, FINITE_AT_ZERO)
_unary_inexact("cosine", "The cosine of each element, in radians.", TRANSCENDENTAL, FINITE_AT_ZERO)
_unary_inexact("sine", "The sine of each element, in radians.", TRANSCENDENTAL, FINITE_AT_ZERO)
_unary_inexact("tan", "The tangent of each element, in radians.", TRANSCENDENTAL, FINITE_AT_ZERO)
_unary_float(
    "erf",
    "The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
    TRANSCENDENTAL,
    FINITE_AT_ZERO,
)
_unary_float("ceil", "The lowest integer that is not below each element.", FINITE_AT_ZERO)
_unary_float("floor", "The highest integer that is not above each element.", FINITE_AT_ZERO)
_unary_float(
    "round_nearest_even",
    "The nearest integer of each element; of two as near, the even one.",
    FINITE_AT_ZERO,
)
_unary_float(
    "round_nearest_afz", "The nearest integer of each element; of two as near, the larger in size."
)
_unary(
    "sign",
    "-1, 0 or 1 as each element is negative, zero or positive; x / abs(x) of complex numbers.",
    _signed_operand,
    FINITE_AT_ZERO,
)
_binary(
    "add",
    "The sum; integers wrap around; of pred the logical or.",
    COMMUTATIVE,
    ASSOCIATIVE,
    FINITE_AT_ZERO,
    LinearIn((0, 1), _counts),
    check=_any_operand,
)
_binary("subtract", "The difference; integers wrap around.", FINITE_AT_ZERO, LinearIn((0, 1)))
_binary(
    "multiply",
    "The product; integers wrap around; of pred the logical and.",
    COMMUTATIVE,
    ASSOCIATIVE,
    FINITE_AT_ZERO,
    LinearIn((0,), _counts),
    LinearIn((1,), _counts),
    check=_any_operand,
)
_binary(
    "divide",
    "The quotient; integers truncate toward zero, and x/0 is -1 (all ones) as in XLA.",
    FINITE_AT_ZERO,
    LinearIn((0,), _is_float),
)
_binary(
    "remainder",
    "The remainder of the quotient, with the sign of ``lhs``; integer x%0 is x.",
    check=number_operand,
)
_binary(
    "power",
    "``lhs`` to the power of ``rhs``; integers to negative powers are 0, save 1 and -1.",
    TRANSCENDENTAL,
    POSITIVE_DOMAIN,
)
_binary(
    "maximum",
    "The greater one; NaN if either is NaN; of pred the logical or.",
    COMMUTATIVE,
    ASSOCIATIVE,
    FINITE_AT_ZERO,
    check=ordered_operand,
)
_binary(
    "minimum",
    "The lesser one; NaN if either is NaN; of pred the logical and.",
    COMMUTATIVE,
    ASSOCIATIVE,
    FINITE_AT_ZERO,
    check=ordered_operand,
)


@define("abs", "operand", traits=(ELEMENTWISE, FINITE_AT_ZERO))
def _abs(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The absolute value, real for complex numbers; the lowest integer's is itself.

    Example:
        %y = abs(%x) : f32[B,4]
    """
    _signed_operand(types)
    return (tensor(part_of(types[0].dtype), types[0].shape),)


@define("negate", "operand", traits=(ELEMENTWISE, FINITE_AT_ZERO, LinearIn((0,))))
def _negate(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """-x for each element; integers wrap around.

    Example:
        %y = negate(%x) : f32[B,4]
    """
    arithmetic_operand(types)
    return (types[0],)


@define("atan2", "lhs rhs", traits=(ELEMENTWISE, TRANSCENDENTAL))
def _atan2(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The angle of the point (x = ``rhs``, y = ``lhs``) from -pi to pi, in radians.

    Example:
        %y = atan2(%a, %b) : f32[B,4]
    """
    same_type(types)
    float_operand(types)
    return (types[0],)


@define("is_finite", "operand", traits=(ELEMENTWISE,))
def _is_finite(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """True for each element that is neither infinite nor NaN.

    Example:
        %p = is_finite(%x) : pred[B,4]
    """
    float_operand(types)
    return (tensor(pred, types[0].shape),)


@define("clamp", "min operand max", traits=(ELEMENTWISE,))
def _clamp(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``minimum(maximum(operand, min), max)``: the bounds are scalars or as large as the operand.

    Where ``min`` is greater than ``max`` the result is ``max``; NaN in any of the three gives NaN.

    Example:
        %y = clamp(%low, %x, %high) : f32[B,4]
    """
    low, operand, high = types
    ordered_operand(types, 1)
    for index, bound in ((0, low), (2, high)):
        fits = bound in (operand, tensor(operand.dtype))
        require(fits, f"the bound {bound.text} does not fit {operand.text}", index)
    return (operand,)


@define(
    "compare",
    "lhs rhs",
    attr("direction", choice(*COMPARISONS)),
    traits=(ELEMENTWISE, FINITE_AT_ZERO),
)
def _compare(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Compare elements; a comparison with NaN is false except for NE. Complex: EQ and NE only.

    Example:
        %p = compare(%a, %b) direction=LE : pred[B,4]
    """
    same_type(types)
    if attrs.text("direction") not in ("EQ", "NE"):
        ordered_operand(types)
    return (tensor(pred, types[0].shape),)


@define("select", "pred on_true on_false", traits=(ELEMENTWISE, FINITE_AT_ZERO, LinearIn((1, 2))))
def _select(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``on_true`` where ``pred`` holds, else ``on_false``.

    Example:
        %y = select(%p, %a, %b) : f32[B,4]
    """
    require(types[0].dtype is pred, f"the condition must be pred, got {types[0].text}", 0)
    same_type(types[1:])
    require(
        types[0].shape == types[1].shape,
        f"condition {types[0].text} and branches {types[1].text} differ in shape",
        0,
    )
    return (types[1],)


@define(
    "convert",
    "operand",
    attr("dtype", ELEMENT),
    traits=(
        *(ELEMENTWISE, FINITE_AT_ZERO, Trait.DATA_MOVEMENT, Trait.RELAYOUT),
        LinearIn((0,), _widens_float),
    ),
)
def _convert(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Change the element type; floats round to nearest even, float to integer truncates.

    A float beyond an integer type's range gives the nearest end of it, and NaN gives 0, as in XLA.
    A complex number loses its imaginary part, and is true if either part is not 0.

    Example:
        %y = convert(%x) dtype=bf16 : bf16[B,4]
    """
    dtype = attrs.element("dtype")
    return (tensor(dtype, types[0].shape),)
