"""The step model of a draft at work: tokens that it proposes after each step are taken back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.runtime.accuracy.step_model import StepLogits
from graphgen.runtime.sampling import GREEDY
from graphgen.runtime.speculation.draft_model import DraftModel
from graphgen.runtime.speculation.proposal import SpeculativeRow


class DraftStepModel:
    """The logits that a draft proposes its first tokens from.

    Args:
        draft: the draft.
        proposed: tokens that it proposes after each step. Those that the next step does not take
            are refused, so that its cache goes back as in speculation.
    """

    def __init__(self, draft: DraftModel, proposed: int) -> None:
        self._draft = draft
        self._proposed = proposed
        self._sequences: list[list[int]] = []

    def start(self, prompts: Sequence[Sequence[int]]) -> StepLogits:
        """See :meth:`~graphgen.runtime.accuracy.step_model.StepModel.start`."""
        self._draft.start()
        self._sequences = [list(prompt) for prompt in prompts]
        return self._logits(0)

    def step(self, tokens: Sequence[int]) -> StepLogits:
        """See :meth:`~graphgen.runtime.accuracy.step_model.StepModel.step`."""
        for sequence, token in zip(self._sequences, tokens, strict=True):
            sequence.append(token)
        return self._logits(1)

    def _logits(self, made: int) -> StepLogits:
        found = self._draft.logits_after(dict(enumerate(map(list, self._sequences))))
        rows = [
            SpeculativeRow(sequence, GREEDY, number, made, self._proposed)
            for number, sequence in enumerate(self._sequences)
        ]
        self._draft.propose(rows)
        return np.stack([found[number] for number in range(len(rows))]).astype(np.float32)
