"""Bitwise ops: logic, shifts, bit casts, reduced precision."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ir.dtype import pred
from graphgen.ops.attr_types import ELEMENT, INTEGER
from graphgen.ops.factors import Factors, FactorTable, ValueFactors
from graphgen.ops.opdef import attr, define, float_operand, require, same_type
from graphgen.ops.traits import Property, Trait, Types

ELEMENTWISE = Trait.ELEMENTWISE


def _logical(types: Sequence[TensorType]) -> None:
    kind = types[0].dtype
    require(kind is pred or kind.is_integer, f"has no meaning for {types[0].text}", 0)


def _integers(types: Sequence[TensorType]) -> None:
    require(types[0].dtype.is_integer, f"needs integers, got {types[0].text}", 0)


def _logic(name: str, doc: str, *traits: Property) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        same_type(types)
        _logical(types)
        return (types[0],)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%p, %q) : pred[B]"
    traits = (ELEMENTWISE, Trait.COMMUTATIVE, Trait.ASSOCIATIVE, *traits)
    define(name, "lhs rhs", traits=traits)(infer)


def _shift(name: str, doc: str) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        same_type(types)
        _integers(types)
        return (types[0],)

    more = "By all bits or more, or by a negative number, nothing but what fills up is left."
    infer.__doc__ = f"{doc}\n\n{more}\n\nExample:\n    %y = {name}(%a, %b) : s32[B]"
    define(name, "lhs rhs", traits=(ELEMENTWISE,))(infer)


def _count(name: str, doc: str) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        _integers(types)
        return (types[0],)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%a) : s32[B]"
    define(name, "operand", traits=(ELEMENTWISE,))(infer)


_logic("and", "Logical and of pred, bitwise and of integers.", Trait.FINITE_AT_ZERO)
_logic("or", "Logical or of pred, bitwise or of integers.")
_logic("xor", "Logical exclusive or of pred, bitwise exclusive or of integers.")
_shift("shift_left", "``lhs`` moved up by ``rhs`` bits, filled up with 0.")
_shift("shift_right_logical", "``lhs`` moved down by ``rhs`` bits, filled up with 0.")
_shift(
    "shift_right_arithmetic",
    "``lhs`` moved down by ``rhs`` bits, filled up with its highest bit.",
)
_count("popcnt", "The number of set bits of each integer.")
_count(
    "count_leading_zeros",
    "The number of zero bits above the highest set bit of each integer.",
)


@define("not", "operand", traits=(ELEMENTWISE,))
def _not(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Logical not of pred, every bit turned of integers.

    Example:
        %y = not(%p) : pred[B]
    """
    _logical(types)
    return (types[0],)


@define(
    "reduce_precision",
    "operand",
    attr("exponent_bits", INTEGER),
    attr("mantissa_bits", INTEGER),
    traits=(ELEMENTWISE, Trait.FINITE_AT_ZERO),
)
def _reduce_precision(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Each element as a float of so few bits would hold it, in its own type still.

    Rounded to nearest even; what is then too large becomes infinite, what is too small becomes 0.

    Example:
        %y = reduce_precision(%x) exponent_bits=5 mantissa_bits=10 : f32[B,4]
    """
    float_operand(types)
    exponent, mantissa = attrs.integer("exponent_bits"), attrs.integer("mantissa_bits")
    require(exponent >= 1, f"exponent_bits {exponent} is less than 1")
    require(mantissa >= 0, f"mantissa_bits {mantissa} is negative")
    return (types[0],)


def _bitcast_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """The dimension that holds the parts of one element is whole."""
    table = FactorTable()
    shared = table.of(min(operands[0], results[0], key=lambda type_: type_.rank))
    return Factors(
        table.sizes, (_extended(shared, operands[0].rank),), (_extended(shared, results[0].rank),)
    )


def _extended(dims: ValueFactors, rank: int) -> ValueFactors:
    return (*dims, *[()] * (rank - len(dims)))


@define(
    "bitcast_convert",
    "operand",
    attr("dtype", ELEMENT),
    traits=(Trait.DATA_MOVEMENT, Trait.VIEW, Trait.FINITE_AT_ZERO),
    factors=_bitcast_factors,
)
def _bitcast_convert(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The same bits read as another element type.

    A type ``n`` times as wide takes the last dimension, which must be ``n``, for the parts of one
    element, lowest bits first; one that is ``n`` times narrower adds such a dimension. As in HLO an
    element of pred is a byte, 0 or 1.

    Example:
        %y = bitcast_convert(%x) dtype=u16 : u16[B,4]
    """
    (operand,), dtype = types, attrs.element("dtype")
    shape, old, new = operand.shape, operand.dtype.bits, dtype.bits
    fits = max(old, new) % min(old, new) == 0 and operand.dtype.is_complex == dtype.is_complex
    # StableHLO counts one bit for pred, HLO eight: only a byte is the same in both.
    legible = operand.dtype is dtype or (
        fits and (old == new or pred not in (operand.dtype, dtype))
    )
    require(legible, f"{operand.text} has no reading as {dtype.name}", 0)
    if new > old:
        parts = new // old
        fits = bool(shape) and shape[-1] == parts
        require(fits, f"{operand.text} needs a last dimension of {parts} for {dtype.name}", 0)
        return (tensor(dtype, shape[:-1]),)
    return (tensor(dtype, shape if new == old else (*shape, old // new)),)
