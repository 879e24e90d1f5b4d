"""Find ops that only enlarge a stored weight, to recompute them inside programs."""

from __future__ import annotations

from graphgen.ir import Op, Value


def only_enlarges(op: Op) -> bool:
    """True if ``op`` adds bytes but no information: a broadcast, or a widened narrow weight.

    Storing the result would repeat the same numbers: a bias per row, or the narrow numbers of a
    quantized weight as floats. Numbers with a scale each have as many bytes as the result.
    """
    if op.name == "broadcast_in_dim":
        return True
    if op.name == "dequantize":
        values, *facts = [value.type for value in op.operands]
        held = values.size * values.dtype.bits
        for type_ in facts:
            held += type_.size * type_.dtype.bits
        wide = op.result.type.size * op.result.dtype.bits
        return isinstance(held, int) and isinstance(wide, int) and held < wide
    return op.name == "convert" and op.operands[0].dtype.bits <= 8 < op.result.dtype.bits


def widened(dot: Op) -> Op | None:
    """The conversion that widens the 8-bit right operand of a product, if there is one."""
    made = dot.operands[1].producer("convert")
    return made if made is not None and only_enlarges(made) else None


def weight_of(dot: Op) -> Value:
    """The right operand of a product, before the conversion that widens 8-bit numbers."""
    made = widened(dot)
    return dot.operands[1] if made is None else made.operands[0]
