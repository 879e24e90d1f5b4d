"""Decomposition of XLA's own custom calls into the ops of the IR.

Optimized HLO of the CPU calls ``TopK`` with a comparator, and HLO of JAX has ``topk``: both are a
sort of elements with their places, of which the first are taken.
"""

from __future__ import annotations

from typing import Final

from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.dtype import s32
from graphgen.lowering.hlo.subcomputations import COMPUTATIONS
from graphgen.lowering.hlo_proto.fields import ComputationField
from graphgen.lowering.hlo_proto.fields import InstructionField as F
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.in_place import ops_after, replace_op

TOP_K: Final = "TopK"


def with_known_calls(module: Module) -> Module:
    """Replace such instructions by ops, in place."""
    for function in module.functions.values():
        for op in list(function.block):
            descending = _order(op)
            if descending is not None:
                replace_op(function, op, _chosen(function, op, descending=descending))
    return module


def _order(op: Op) -> bool | None:
    """True for a top-k of the largest elements, ``False`` for the smallest; ``None`` for others."""
    if op.name != "hlo.opaque" or op.attrs.text("text") or not _fits(op):
        return None
    fields = Message(bytes.fromhex(op.attrs.text("fields") + op.attrs.text("more")))
    if op.attrs.text("opcode") == "topk":
        return fields.boolean(F.LARGEST)
    if op.attrs.text("opcode") != "custom-call" or fields.text(F.CUSTOM_CALL_TARGET) != TOP_K:
        return None
    direction = _direction(op.attrs.text("regions"))
    return direction == "GT" if direction in ("GT", "LT") else None


def _fits(op: Op) -> bool:
    """True for one array, and two results: elements of it and their places."""
    if len(op.operands) != 1 or len(op.results) != 2 or not op.operands[0].type.rank:
        return False
    whole, (values, places) = op.operands[0].type, [result.type for result in op.results]
    sizes = whole.dims[:-1]
    return (
        values.dtype is whole.dtype
        and places.dtype is s32
        and values.dims == places.dims
        and values.dims[:-1] == sizes
        and values.dims[-1] <= whole.dims[-1]
    )


def _direction(regions: str) -> str:
    """The direction of the comparison that is the root of the only region."""
    if not regions or "," in regions:
        return ""
    called = Message(bytes.fromhex(regions)).messages(COMPUTATIONS)[-1]
    root = called.integer(ComputationField.ROOT_ID)
    for instruction in called.messages(ComputationField.INSTRUCTIONS):
        if instruction.integer(F.ID) == root and instruction.text(F.OPCODE) == "compare":
            return instruction.text(F.COMPARISON_DIRECTION)
    return ""


def _chosen(function: Function, op: Op, *, descending: bool) -> list[Value]:
    """The first elements in order and their places; of equal ones the first."""
    x = op.operands[0]
    dim = x.type.rank - 1
    limits = op.results[0].type.dims
    order = {"dimension": dim, "descending": descending}
    first = {"start_indices": (0,) * len(limits), "limit_indices": limits}
    with ops_after(function, op) as b:
        places = b.iota(s32, x.shape, dim)
        ordered = b.emit("sort", [x, places], {**order}).results
        return [b.emit("slice", [value], {**first}).result for value in ordered]
