"""Ring buffers: occupancy of caches that keep the newest positions of each row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import Array


class RingOccupancy:
    """Number of positions in each row of a cache, followed through the calls of a program.

    Args:
        rows: R, rows of the cache.
        slots: M, positions a row has room for; later ones are dropped.
    """

    def __init__(self, rows: int, slots: int) -> None:
        self.slots = slots
        self.lengths: Array = np.zeros(rows, np.int64)
        # One more than the largest position that was written since the row began.
        self.reached: Array = np.zeros(rows, np.int64)

    def begin(self, inputs: Mapping[str, Array]) -> None:
        """Before a call: set the rows it names to the lengths before its tokens (GG0402)."""
        rows, first, _ = self._lengths_of(inputs)
        self.lengths[rows] = self.reached[rows] = first

    def end(self, inputs: Mapping[str, Array]) -> None:
        """After a call: set the rows it names to the lengths with its tokens (GG0402)."""
        rows, first, last = self._lengths_of(inputs)
        self.lengths[rows] = last
        # Positions that later tokens replace stay overwritten.
        self.reached[rows] = np.where(first > 0, np.maximum(self.reached[rows], last), last)

    def _lengths_of(self, inputs: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        """Rows of the cache that a call names, and their lengths before and after it."""
        missing = [name for name in ("positions", "lengths", "seq_ids") if name not in inputs]
        if missing:
            what = f"what a cache holds that keeps its newest positions needs {', '.join(missing)}"
            raise GraphgenError("GG0402", what)
        lengths, seq_ids = (np.asarray(inputs[name], np.int64) for name in ("lengths", "seq_ids"))
        new = np.sum(np.asarray(inputs["positions"]) >= 0, axis=1)
        known = (seq_ids >= 0) & (seq_ids < len(self.lengths))
        before, after = (np.minimum(size, self.slots)[known] for size in (lengths - new, lengths))
        return seq_ids[known], before, after

    def hidden(self, shape: tuple[int, ...], last: int) -> Array:
        """Mask of the elements of a logical cache [R,M,...] that a ring of ``last`` slots lost."""
        slots, lengths = np.arange(shape[1]), self.lengths[:, None]
        lost = (slots < self.reached[:, None] - last) | (slots >= lengths)
        return np.broadcast_to(lost.reshape(*lost.shape, *[1] * (len(shape) - 2)), shape)

    def wound(self, whole: Array, last: int) -> Array:
        """A logical cache [R,M,...] rotated so that its first ``last`` slots are those of the ring.

        Slot j of a row holds its newest position that is j modulo ``last``.
        """
        slots, newest = np.arange(last), self.lengths[:, None] - 1
        held = newest - (newest - slots) % last
        out = whole.copy()
        rows = np.arange(len(whole))[:, None]
        # A slot that was never written stays as it is.
        out[:, :last] = whole[rows, np.where(held >= 0, held, slots)]
        return out
