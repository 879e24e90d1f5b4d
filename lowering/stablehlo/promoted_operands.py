"""Operands of reductions whose region combines wider elements than they have.

StableHLO lets a region accumulate in a wider type: a sum of f32 as f64. The IR's reductions combine
elements of one type, so the operands are converted first, which gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.lowering.mlir.mlir_types import element_text, read_tensor_type
from graphgen.lowering.mlir.syntax_tree import BlockArgument, MlirOp
from graphgen.lowering.stablehlo.read_context import StableHloReadContext


def promoted(
    to: StableHloReadContext,
    node: MlirOp,
    operands: Sequence[Value],
    arguments: Sequence[BlockArgument],
) -> list[Value]:
    """Convert each operand to the element type of its argument of the region.

    Args:
        to: where conversions are appended.
        node: the op.
        operands: the operands that the region combines.
        arguments: the argument of the region for each of them.

    Raises:
        GraphgenError: GG0203 where the argument's type is not as wide as the operand's.
    """
    found: list[Value] = []
    for value, argument in zip(operands, arguments, strict=False):
        # The region of "applies" does not state types.
        wide = read_tensor_type(argument.type).dtype if argument.type else value.dtype
        if wide is value.dtype:
            found.append(value)
        elif _is_promotable(value.dtype, wide):
            found.append(to.emit("convert", [value], dtype=wide))
        else:
            spelled = element_text(value.dtype), element_text(wide)
            what = f"{node.name} reads {spelled[0]}, but its region combines {spelled[1]}"
            raise GraphgenError("GG0203", what, help="a region may only be wider: f32 as f64")
    return [*found, *operands[len(found) :]]


def _is_promotable(given: DType, wide: DType) -> bool:
    """StableHLO's rule: elements of one kind, and as many bits or more."""
    if given.bits > wide.bits or given.is_quantized or wide.is_quantized:
        return False
    return _kind(given) == _kind(wide) != "p"


def _kind(dtype: DType) -> str:
    if dtype.is_float:
        return "float"
    return "complex" if dtype.is_complex else dtype.name[0]
