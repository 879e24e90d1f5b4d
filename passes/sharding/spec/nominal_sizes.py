"""Nominal sizes: estimates of symbolic dimensions, for cost comparisons before specialization."""

from __future__ import annotations

from graphgen.ir import Dim, TensorType

# The value of every symbol in an estimate.
NOMINAL = 8


def nominal(size: Dim) -> int:
    """The dimension with :data:`NOMINAL` for each of its symbols, at least 1."""
    if isinstance(size, int):
        return size
    total = 0
    for names, factor in size.terms:
        total += factor * NOMINAL ** len(names)
    return max(total, 1)


def nominal_bytes(type_: TensorType) -> int:
    """The size of a tensor in bytes, with nominal dimensions."""
    return -(-nominal(type_.size) * type_.dtype.bits // 8)
