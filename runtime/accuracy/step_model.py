"""The interface of both sides of a check: prompts in, the logits of one step after another out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.session import Session

# f32 [N,V]: a row of logits for each prompt.
StepLogits = npt.NDArray[np.float32]
# f32 [S,E]: the hidden state of each token of one sequence.
HiddenStates = npt.NDArray[np.float32]


class StepModel(Protocol):
    """A causal model that gives logits step by step, from tokens that the caller chooses."""

    def start(self, prompts: Sequence[Sequence[int]]) -> StepLogits:
        """Forget everything, process prompts; f32 [N,V], the logits after each prompt."""
        ...

    def step(self, tokens: Sequence[int]) -> StepLogits:
        """Append one token to each prompt; f32 [N,V], the logits after it."""
        ...


class LayerModel(Protocol):
    """A causal model that gives the hidden states between its layers."""

    def hidden_states(self, tokens: Sequence[int]) -> list[HiddenStates]:
        """Hidden states of one sequence, as transformers' ``output_hidden_states`` orders them.

        Args:
            tokens: S token ids.

        Returns:
            L + 1 arrays f32 [S,E] for L layers: the embedding, then the output of each layer; the
            last one is normalized.
        """
        ...


class SessionModel:
    """The step model of a session.

    Args:
        session: its programs must give logits (GG0705 otherwise).
    """

    def __init__(self, session: Session) -> None:
        if session.chooses:
            raise GraphgenError(
                "GG0705",
                "these programs choose tokens themselves and give no logits to compare",
                help="compare tokens, or compile without on-device sampling",
            )
        self.session = session
        self._count = 0

    def start(self, prompts: Sequence[Sequence[int]]) -> StepLogits:
        """See :meth:`StepModel.start`."""
        idle = self.session.rows - len(prompts)
        if idle < 0:
            raise GraphgenError(
                "GG0705",
                f"{len(prompts)} prompts, but the programs were compiled for {self.session.rows}",
                help="give fewer prompts, or compile for more rows",
            )
        self._count = len(prompts)
        self.session.reset()
        return self.session.prefill([*prompts, *([()] * idle)])[: self._count]

    def step(self, tokens: Sequence[int]) -> StepLogits:
        """See :meth:`StepModel.step`."""
        idle = self.session.rows - self._count
        active = [True] * self._count + [False] * idle
        return self.session.decode([*tokens, *([0] * idle)], active)[: self._count]
