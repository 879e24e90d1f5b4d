"""Comparison of floats in IEEE 754's total order, written as one of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphgen.ir import AttrValue, Literal, Value
from graphgen.ir.dtype import DTYPES


class Emit(Protocol):
    """Appends an op of one result."""

    def __call__(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """The result of the op ``name``."""
        ...


def total_order_key(emit: Emit, x: Value) -> Value:
    """Map floats to integers of the same order: the bits, inverted below a set sign."""
    kind = DTYPES[f"s{x.dtype.bits}"]

    def full(number: int) -> Value:
        scalar = emit("constant", [], value=Literal.of(kind, number))
        if not x.type.rank:
            return scalar
        return emit("broadcast_in_dim", [scalar], shape=x.shape, dimensions=())

    bits = emit("bitcast_convert", [x], dtype=kind)
    negative = emit("compare", [bits, full(0)], direction="LT")
    turned = emit("xor", [bits, full((1 << (kind.bits - 1)) - 1)])
    return emit("select", [negative, turned, bits])
