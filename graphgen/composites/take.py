"""Decomposition of ``take`` for compiled programs.

Weight preparation executes a take as a copy of blocks, without this decomposition.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.ir import Attrs, Value, tensor


def take_by_gather(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """A gather of blocks, then zeros for indices out of range."""
    operand, indices = operands
    axis, block = attrs.integer("dimension"), attrs.integer("block")
    before, after = operand.shape[:axis], operand.shape[axis + 1 :]
    size = operand.shape[axis]
    assert isinstance(size, int)
    count = size // block
    found = b.op(
        "gather",
        b.reshape(operand, (*before, count, block, *after)),
        indices,
        offset_dims=tuple(dim for dim in range(operand.type.rank + 1) if dim != axis),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        index_vector_dim=1,
        slice_sizes=(*before, 1, block, *after),
    )
    inside = in_range(b, indices, count)
    zeros = b.full(0, tensor(operand.dtype, found.shape))
    chosen = b.select(b.broadcast_in_dim(inside, found.shape, [axis]), found, zeros)
    return [b.reshape(chosen, (*before, indices.shape[0] * block, *after))]
