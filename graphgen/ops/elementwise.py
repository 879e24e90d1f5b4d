"""Elementwise ops: one result element from the operand elements at the same place."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ir.dtype import Kind, c64, pred
from graphgen.ops.opdef import Attr, define, float_operand, number_operand, require, same_type

UNARY_FLOAT = {
    "exponential": "e to the power of each element.",
    "rsqrt": "1 / sqrt(x) for each element.",
    "logistic": "1 / (1 + exp(-x)) for each element.",
    "cosine": "The cosine of each element, in radians.",
    "sine": "The sine of each element, in radians.",
    "round_nearest_even": "The nearest integer of each element; of two as near, the even one.",
}
BINARY = {
    "add": "The sum; integers wrap around.",
    "subtract": "The difference; integers wrap around.",
    "multiply": "The product; integers wrap around.",
    "maximum": "The greater one; NaN if either is NaN.",
    "minimum": "The lesser one; NaN if either is NaN.",
}
COMPARISONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def _define_unary(name: str, doc: str) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        float_operand(types)
        return (types[0],)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%x) : f32[B,4]"
    define(name, "operand")(infer)


def _define_binary(name: str, doc: str) -> None:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        same_type(types)
        number_operand(types)
        return (types[0],)

    infer.__doc__ = f"{doc}\n\nExample:\n    %y = {name}(%a, %b) : f32[B,4]"
    define(name, "lhs rhs")(infer)


def _bits(types: Sequence[TensorType]) -> None:
    kind = types[0].dtype
    require(kind is pred or kind.is_integer, f"has no meaning for {types[0].text}", 0)


for _name, _doc in UNARY_FLOAT.items():
    _define_unary(_name, _doc)
for _name, _doc in BINARY.items():
    _define_binary(_name, _doc)


@define("negate", "operand")
def _negate(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """-x for each element; integers wrap around.

    Example:
        %y = negate(%x) : f32[B,4]
    """
    number_operand(types)
    return (types[0],)


@define("abs", "operand")
def _abs(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The absolute value; that of the lowest integer wraps around to itself.

    Example:
        %y = abs(%x) : f32[B,4]
    """
    kind = types[0].dtype
    require(kind.is_float or kind.kind is Kind.SIGNED, f"has no signs: {types[0].text}", 0)
    return (types[0],)


@define("clamp", "min operand max")
def _clamp(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``minimum(maximum(operand, min), max)``: the bounds are scalars or as large as the operand.

    Where ``min`` is greater than ``max`` the result is ``max``; NaN in any of the three gives NaN.

    Example:
        %y = clamp(%low, %x, %high) : f32[B,4]
    """
    low, operand, high = types
    number_operand(types, 1)
    for index, bound in ((0, low), (2, high)):
        fits = bound in (operand, tensor(operand.dtype))
        require(fits, f"the bound {bound.text} does not fit {operand.text}", index)
    return (operand,)


@define("divide", "lhs rhs")
def _divide(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The quotient; integers truncate toward zero, and x/0 is -1 (all ones) as in XLA.

    Example:
        %y = divide(%a, %b) : f32[B,4]
    """
    same_type(types)
    number_operand(types)
    return (types[0],)


@define("and", "lhs rhs")
def _and(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Logical and of pred, bitwise and of integers.

    Example:
        %y = and(%p, %q) : pred[B]
    """
    same_type(types)
    _bits(types)
    return (types[0],)


@define("compare", "lhs rhs", Attr("direction", "text", choices=COMPARISONS))
def _compare(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Compare elements; a comparison with NaN is false except for NE.

    Example:
        %p = compare(%a, %b) direction=LE : pred[B,4]
    """
    same_type(types)
    require(types[0].dtype is not c64, f"has no order: {types[0].text}", 0)
    return (tensor(pred, types[0].shape),)


@define("select", "pred on_true on_false")
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


@define("convert", "operand", Attr("dtype", "element"))
def _convert(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Change the element type; floats round to nearest even, float to integer truncates.

    A float beyond an integer type's range gives the nearest end of it, and NaN gives 0, as in XLA.

    Example:
        %y = convert(%x) dtype=bf16 : bf16[B,4]
    """
    dtype = attrs.element("dtype")
    real = c64 not in (types[0].dtype, dtype) or types[0].dtype is dtype
    require(real, f"{types[0].text} does not become {dtype.name}", 0)
    return (tensor(dtype, types[0].shape),)


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
