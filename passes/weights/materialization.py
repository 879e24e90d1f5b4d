"""Rules for what a program computes from a stored weight instead of storing the result."""

from __future__ import annotations

from graphgen.ir import Op, Value


def only_enlarges(op: Op) -> bool:
    """True if ``op`` adds bytes but no information: a broadcast, or a widened 8-bit weight.

    Storing the result would repeat the same numbers: a bias per row, or the 8-bit numbers of a
    quantized weight as floats.
    """
    if op.name == "broadcast_in_dim":
        return True
    return op.name == "convert" and op.operands[0].dtype.bits <= 8 < op.result.dtype.bits


def widened(dot: Op) -> Op | None:
    """The conversion that widens the 8-bit right operand of a product, if there is one."""
    made = dot.operands[1].producer("convert")
    return made if made is not None and only_enlarges(made) else None


def weight_of(dot: Op) -> Value:
    """The right operand of a product, before the conversion that widens 8-bit numbers."""
    made = widened(dot)
    return dot.operands[1] if made is None else made.operands[0]
