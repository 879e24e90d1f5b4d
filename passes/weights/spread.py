"""What a program does with a prepared weight itself, rather than read the result."""

from __future__ import annotations

from graphgen.ir import Op, Value


def only_enlarges(op: Op) -> bool:
    """Whether the result of ``op`` says no more than its operand, in more bytes.

    Prepared once, it would hold the same numbers many times: a bias for every row, or the 8-bit
    numbers of a quantized weight as floats.
    """
    if op.name == "broadcast_in_dim":
        return True
    return op.name == "convert" and op.operands[0].dtype.bits <= 8 < op.result.dtype.bits


def widened(dot: Op) -> Op | None:
    """The conversion of 8-bit numbers that a product has on the right, if it has one."""
    made = dot.operands[1].producer("convert")
    return made if made is not None and only_enlarges(made) else None


def weight_of(dot: Op) -> Value:
    """What a product has on the right; of 8-bit numbers that the program widens, the numbers."""
    made = widened(dot)
    return dot.operands[1] if made is None else made.operands[0]
