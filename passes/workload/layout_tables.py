"""Tables of layouts other than the default ones, for the calls of a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphgen.eval import Array
from graphgen.exec.session import ProgramCall, Workload
from graphgen.exec.weights import default_layouts
from graphgen.ir import Module, Role


def permuted(module: Module, workload: Workload, seed: int = 0) -> Workload | None:
    """The workload with block tables in another order, and no blocks beyond what its calls need.

    Args:
        module: a layout is a table s32 [R,T] of blocks, negative for none.
        workload: its calls have ``positions`` and ``seq_ids``.
        seed: of the order.

    Returns:
        ``None`` for a module without layouts.
    """
    tables = default_layouts(module)
    if not tables:
        return None
    rng = np.random.default_rng(seed)
    slots = max(row.logical.dims[1] for row in module.entries(Role.STATE))
    made = {name: _permuted(table, slots, workload.calls, rng) for name, table in tables.items()}
    return replace(workload, layouts=made)


def _permuted(
    table: Array, slots: int, calls: Sequence[ProgramCall], rng: np.random.Generator
) -> Array:
    rows, columns = table.shape
    longest = _lengths(rows, calls)
    # The last block may be cut, so that others begin no earlier than this.
    block = -(-slots // columns)
    first = np.arange(0, columns * block, block, dtype=np.int64)
    used: Array = (first < longest[:, None]) & (table >= 0)
    out = np.full_like(table, -1)
    out[used] = rng.permutation(table[table >= 0])[: np.count_nonzero(used)]
    return out


def _lengths(rows: int, calls: Sequence[ProgramCall]) -> Array:
    """The positions of each row that some call writes, or all where a call does not say them."""
    longest = np.zeros(rows, np.int64)
    for call in calls:
        if "positions" not in call.inputs or "seq_ids" not in call.inputs:
            return np.full(rows, np.iinfo(np.int64).max)
        ends = call.inputs["positions"].max(1, initial=-1) + 1
        # The nodes of a tree share positions, and have a slot each.
        ends = np.maximum(ends, call.inputs.get("lengths", ends))
        for row, end in zip(call.inputs["seq_ids"].tolist(), ends.tolist(), strict=True):
            if 0 <= row < rows:
                longest[row] = max(longest[row], end)
    return longest
