"""Ops on the bits of elements: logic, shifts, other readings, rounding to fewer of them."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ir.dtype import c64, pred
from graphgen.ops.opdef import Attr, define, float_operand, require, same_type

LOGIC = {
    "and": "Logical and of pred, bitwise and of integers.",
    "or": "Logical or of pred, bitwise or of integers.",
    "xor": "Logical exclusive or of pred, bitwise exclusive or of integers.",
}
SHIFTS = {
    "shift_left": "``lhs`` moved up by ``rhs`` bits, filled up with 0.",
    "shift_right_logical": "``lhs`` moved down by ``rhs`` bits, filled up with 0.",
    "shift_right_arithmetic": "``lhs`` moved down by ``rhs`` bits, filled up with its highest bit.",
}
COUNTS = {
    "popcnt": "How many bits of each integer are set.",
    "count_leading_zeros": "How many bits of each integer are above the highest one that is set.",
}


def _logical(types: Sequence[TensorType]) -> None:
    kind = types[0].dtype
    require(kind is pred or kind.is_integer, f"has no meaning for {types[0].text}", 0)


def _integers(types: Sequence[TensorType]) -> None:
    require(types[0].dtype.is_integer, f"needs integers, got {types[0].text}", 0)


def _define_logic(name: str, doc: str) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        same_type(types)
        _logical(types)
        return (types[0],)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%p, %q) : pred[B]"
    define(name, "lhs rhs")(infer)


def _define_shift(name: str, doc: str) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        same_type(types)
        _integers(types)
        return (types[0],)

    more = "By all bits or more, or by a negative number, nothing but what fills up is left."
    infer.__doc__ = f"{doc}\n\n{more}\n\nExample:\n    %y = {name}(%a, %b) : s32[B]"
    define(name, "lhs rhs")(infer)


def _define_count(name: str, doc: str) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        _integers(types)
        return (types[0],)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%a) : s32[B]"
    define(name, "operand")(infer)


for _name, _doc in LOGIC.items():
    _define_logic(_name, _doc)
for _name, _doc in SHIFTS.items():
    _define_shift(_name, _doc)
for _name, _doc in COUNTS.items():
    _define_count(_name, _doc)


@define("not", "operand")
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
    Attr("exponent_bits", "integer"),
    Attr("mantissa_bits", "integer"),
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


@define("bitcast_convert", "operand", Attr("dtype", "element"))
def _bitcast_convert(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The same bits read as another element type.

    A type ``n`` times as wide takes the last dimension, which must be ``n``, for the parts of one
    element, lowest bits first; one that is ``n`` times narrower adds such a dimension.

    Example:
        %y = bitcast_convert(%x) dtype=u16 : u16[B,4]
    """
    (operand,), dtype = types, attrs.element("dtype")
    legible = {operand.dtype, dtype}.isdisjoint({pred, c64}) or operand.dtype is dtype
    require(legible, f"{operand.text} has no reading as {dtype.name}", 0)
    shape, old, new = operand.shape, operand.dtype.bits, dtype.bits
    if new > old:
        parts = new // old
        fits = bool(shape) and shape[-1] == parts
        require(fits, f"{operand.text} needs a last dimension of {parts} for {dtype.name}", 0)
        return (tensor(dtype, shape[:-1]),)
    return (tensor(dtype, shape if new == old else (*shape, old // new)),)
