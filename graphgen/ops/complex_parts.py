"""Complex numbers: made of two floats, and taken apart."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ir.dtype import complex_of, part_of
from graphgen.ops.opdef import InferError, define, inexact_operand, same_type
from graphgen.ops.traits import LinearIn, Trait

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
