"""Opcodes of HLO that read as another op of the same meaning, and are written again as they were.

A copy is a reshape to the same shape, a bitcast a transpose or a reshape that moves no byte, a
fusion a call. A bitcast is only written where the layouts on both sides still make it one.
"""

from __future__ import annotations

from graphgen.ir import Op
from graphgen.lowering.hlo.annotations import OPCODE
from graphgen.lowering.hlo_proto.shape import HloShape

# Opcode -> the ops that it reads as.
WRITTEN_AS: dict[str, tuple[str, ...]] = {
    "copy": ("reshape",),
    "bitcast": ("reshape", "transpose", "bitcast_convert"),
    "fusion": ("call",),
}


def written_as(op: Op, operand: HloShape | None, result: HloShape) -> str:
    """The opcode that an op is written as by its annotations; empty for its own.

    Args:
        op: the op.
        operand: shape of its first operand as written, ``None`` without operands.
        result: shape of its result as written.
    """
    code = str(op.annotations.get(OPCODE, ""))
    if op.name not in WRITTEN_AS.get(code, ()):
        return ""
    if code == "fusion":
        return code
    if operand is None or operand.is_tuple:
        return ""
    if code == "copy":
        return code if operand.dims == result.dims else ""
    return code if _moves_nothing(op, operand, result) else ""


def _moves_nothing(op: Op, operand: HloShape, result: HloShape) -> bool:
    """True where an op's result has the bytes of its operand, in the same order."""
    if op.name == "transpose":
        order = op.attrs.integers("permutation")
        return memory_order(operand) == tuple([order[dim] for dim in memory_order(result)])
    if op.name == "reshape":
        return operand.in_order and result.in_order
    same = op.operands[0].dtype.bits == op.results[0].dtype.bits
    return same and operand.dims == result.dims and memory_order(operand) == memory_order(result)


def memory_order(shape: HloShape) -> tuple[int, ...]:
    """The dimensions from major to minor in memory; those of size 1 have no place there."""
    layout = shape.layout or tuple(reversed(range(len(shape.dims))))
    return tuple([dim for dim in reversed(layout) if shape.dims[dim] != 1])


def transposed_in_memory(operand: HloShape, result: HloShape) -> tuple[int, ...] | None:
    """The permutation that a bitcast of one element type is; ``None`` where it is more."""
    before, after = memory_order(operand), memory_order(result)
    sizes = [operand.dims[dim] for dim in before], [result.dims[dim] for dim in after]
    if len(operand.dims) != len(result.dims) or sizes[0] != sizes[1]:
        return None
    order = dict(zip(after, before, strict=True))
    ones = iter([dim for dim, size in enumerate(operand.dims) if size == 1])
    return tuple([order[dim] if dim in order else next(ones) for dim in range(len(result.dims))])
