"""NumPy rules of the ops of token trees, written from their documentation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.composite import within_reach
from graphgen.eval.registry import composite_rule
from graphgen.ir import Attrs


@composite_rule("tree_slots")
def _tree_slots(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    (positions,) = x
    numbers = np.arange(positions.shape[1], dtype=positions.dtype)
    return [np.where(positions >= 0, positions[:, :1] + numbers, -1).astype(positions.dtype)]


@composite_rule("tree_positions")
def _tree_positions(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    positions, out = x[0], x[1].copy()
    for row, at in np.argwhere(out >= 0):
        node = int(out[row, at]) - int(positions[row, 0])
        if 0 <= node < positions.shape[1]:
            # The slot of padding is one after the last node.
            out[row, at] = positions[row, node] if positions[row, node] >= 0 else out[row, at]
    return [out]


@composite_rule("tree_mask")
def _tree_mask(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    positions, slots, ancestors = x
    out = np.zeros((*positions.shape, slots.shape[1]), np.bool_)
    for row, at in np.argwhere(slots >= 0):
        own, slot = positions[row], int(slots[row, at])
        other = slot - int(own[0])
        if other < 0:
            seen, place = True, slot
        elif other < len(own) and own[other] >= 0:
            seen, place = ancestors[row, :, other] != 0, own[other]
        else:
            continue
        out[row, :, at] = seen & (own >= 0) & within_reach(own, np.asarray(place), attrs)
    return [out]


@composite_rule("kv_move")
def _kv_move(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    cache, from_rows, from_slots, rows, slots = x
    out = cache.copy()
    for row, at in np.ndindex(slots.shape):
        source = int(from_rows[row]), int(from_slots[row, at])
        target = int(rows[row]), int(slots[row, at])
        pairs = (source, target)
        if all(0 <= r < cache.shape[0] and 0 <= s < cache.shape[1] for r, s in pairs):
            out[target] = cache[source]
    return [out]
