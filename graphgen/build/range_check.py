"""A test of numbers against the bounds of a range."""

from __future__ import annotations

from graphgen.build.builder import Builder
from graphgen.ir import Value


def in_range(b: Builder, x: Value, size: int) -> Value:
    """``0 <= x < size``, for each element."""
    low = b.compare(x, b.full(0, x.type), "GE")
    return b.binary("and", low, b.compare(x, b.full(size, x.type), "LT"))
