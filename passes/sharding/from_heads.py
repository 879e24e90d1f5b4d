"""Laying out what attention's heads come from, where no name says how it lies.

A checkpoint may keep q, k and v in one tensor: once it has come apart, how each slice lies follows
from the heads it makes, and not from the tensor's name.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphgen.ir import Function, Sharding, Value, sharding

# Ops that give each head from the same head of this operand.
_HEAD_BY_HEAD = {
    "rope": 0,
    "convert": 0,
    "bitcast_convert": 0,
    "rms_norm": 0,
    "cache_read": 0,
    "kv_update": 1,
    "reshape": 0,
}


def lay_out_heads(function: Function, axis: str) -> int:
    """Split by heads, over ``axis``, what the attentions of a program are computed from.

    Returns:
        How many values were given a layout: weights and biases made of checkpoint tensors, slopes.
    """
    count = 0
    for op in function.block:
        if op.name == "attention":
            sources = [found for value in op.operands[:3] for found in _sources(value, axis)]
            sources += [(slopes, sharding((axis,))) for slopes in op.operands[4:5]]
            for value, layout in sources:
                if value.op is not None and value.sharding is None:
                    value.sharding = layout
                    count += 1
    return count


def _sources(value: Value, axis: str) -> Iterator[tuple[Value, Sharding]]:
    """The weight and the biases behind a value [B,S,H,D], with their layouts."""
    while value.op is not None:
        op = value.op
        if op.name in _HEAD_BY_HEAD:
            value = op.operands[_HEAD_BY_HEAD[op.name]]
        elif op.name in ("add", "multiply"):
            spread = [operand.producer("broadcast_in_dim") for operand in op.operands]
            side = 0 if spread[0] is not None else 1
            vector = spread[side]
            if vector is None or len(vector.operands[0].shape) != 1:
                return
            yield vector.operands[0], sharding((axis,))
            value = op.operands[1 - side]
        elif op.name == "dot_general":
            weight = op.operands[1]
            contracted = op.attrs.integers("rhs_contracting_dims")
            if weight.type.rank == 2 and len(contracted) == 1:
                dims = [None if dim in contracted else axis for dim in range(2)]
                yield weight, sharding(dims)
            return
        else:
            return
