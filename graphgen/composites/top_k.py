"""The largest elements of each row, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Attrs, Value
from graphgen.ir.dtype import s32


def top_k(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A stable sort, the largest first, that takes the positions along; then its front."""
    (x,) = operands
    last = len(x.shape) - 1
    ordered = b.sort([x, b.iota(s32, x.shape, last)], last, descending=True)
    return [b.slice_dim(value, last, 0, attrs.integer("k")) for value in ordered]
