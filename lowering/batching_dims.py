"""Batching dimensions of gather and scatter, which the IR's ops do not have.

They are collapsed, and the index vectors get their own positions along them.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Value
from graphgen.lowering.total_order import Emit


def with_positions(emit: Emit, indices: Value, vector: int, dims: Sequence[int]) -> Value:
    """Prepend to each index vector its own positions along ``dims``.

    Args:
        emit: appends ops.
        indices: the index vectors.
        vector: the dimension along which a vector is; one past the last for scalars.
        dims: dimensions of ``indices``, which count the dimension ``vector``.
    """
    shape = (*indices.shape[:vector], 1, *indices.shape[vector + 1 :])
    if vector == indices.type.rank:
        indices = emit("reshape", [indices], shape=shape)
    counts = [emit("iota", [], dtype=indices.dtype, shape=shape, dimension=d) for d in dims]
    return emit("concatenate", [*counts, indices], dimension=vector)
