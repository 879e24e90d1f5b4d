"""The features of tokens that rows of a cache hold, until a draft has taken them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from graphgen.runtime.session.step_call import Floats, StepCall

FEATURES = "features"


@dataclass(slots=True)
class FeatureLog:
    """Keeps the output ``features`` of every launch on the host, by row and position.

    Attributes:
        starts: of each row, the position of the first token whose features are kept.
        parts: of each row, features f32 [n,W] of tokens that follow each other.
    """

    starts: dict[int, int] = field(default_factory=dict[int, int])
    parts: dict[int, list[Floats]] = field(default_factory=dict[int, "list[Floats]"])

    def note(self, call: StepCall, outputs: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Keep the features of one launch; a row that went back loses those beyond.

        Those of a tree are left out: :meth:`put` keeps those of the nodes that were accepted.
        """
        if call.ancestors is not None:
            return
        given = outputs[FEATURES].astype(np.float32, copy=False)
        for place, row in enumerate(call.seq_ids.tolist()):
            real = call.positions[place] >= 0
            if real.any():
                self.put(row, int(call.starts[place]), given[place][real])

    def put(self, row: int, start: int, features: Floats) -> None:
        """Keep features f32 [n,W] of a row's tokens from position ``start`` on."""
        begin = self.starts.get(row, -1)
        if begin < 0 or not begin <= start <= begin + self._held(row):
            self.starts[row], self.parts[row] = start, [features]
            return
        kept = self.between(row, begin, start)
        self.parts[row] = [*([] if kept is None else [kept]), features]

    def _held(self, row: int) -> int:
        return sum(map(len, self.parts.get(row, ())))

    def between(self, row: int, start: int, end: int) -> Floats | None:
        """f32 [end - start,W] of a row's tokens; ``None`` where some are not kept."""
        begin = self.starts.get(row, -1)
        if begin < 0 or start >= end or start < begin or end > begin + self._held(row):
            return None
        parts = self.parts[row]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole[start - begin : end - begin]

    def forget(self, row: int, end: int) -> None:
        """Drop the features of a row's tokens before ``end``."""
        begin = self.starts.get(row, -1)
        if 0 <= begin < end:
            left = self.between(row, end, begin + self._held(row))
            self.starts[row], self.parts[row] = end, [] if left is None else [left.copy()]
