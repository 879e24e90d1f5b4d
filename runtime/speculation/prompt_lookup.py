"""Prompt lookup: propose the continuation of the latest earlier match of the last tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Proposes the continuation of the last n tokens from their latest earlier occurrence.

    n is tried from ``longest`` down to 1, as transformers' ``prompt_lookup_num_tokens`` does; a
    sequence without a repetition gets no proposal.

    Attributes:
        longest: most tokens that are compared, transformers' ``max_matching_ngram_size``.
    """

    longest: int = 3

    def start(self) -> None:
        """Nothing is kept between calls."""

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """Tokens that may follow each row."""
        return [Proposal(self._following(row.sequence, row.wanted)) for row in rows]

    def _following(self, sequence: Sequence[int], wanted: int) -> list[int]:
        known = np.asarray(sequence)
        for size in range(min(self.longest, len(known) - 1), 0, -1) if wanted else ():
            windows = np.lib.stride_tricks.sliding_window_view(known[:-1], size)
            found = np.flatnonzero((windows == known[-size:]).all(1))
            if found.size:
                start = int(found[-1]) + size
                return known[start : start + wanted].tolist()
        return []
