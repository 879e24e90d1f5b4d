"""The interface of both sides of a check: prompts in, the logits of one step after another out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import Draw, packed

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
    """The step model of a session, which takes its cache rows 0 to N - 1.

    Args:
        session: its programs must give logits, beside tokens or alone (GG0705 otherwise).
    """

    def __init__(self, session: Session) -> None:
        if "logits" not in session.module.interface:
            raise GraphgenError(
                "GG0705",
                "these programs choose tokens themselves and give no logits to compare",
                help="compare tokens, or compile without on-device sampling or with its logits",
            )
        self.session = session
        self._count = 0

    def start(self, prompts: Sequence[Sequence[int]]) -> StepLogits:
        """See :meth:`StepModel.start`."""
        if len(prompts) > self.session.rows:
            raise GraphgenError(
                "GG0705",
                f"{len(prompts)} prompts, but the programs were compiled for {self.session.rows}",
                help="give fewer prompts, or compile for more rows",
            )
        self._count = len(prompts)
        self.session.reset()
        return self._logits(*packed(prompts))

    def step(self, tokens: Sequence[int]) -> StepLogits:
        """See :meth:`StepModel.step`."""
        positions = self.session.lengths[: self._count, None]
        return self._logits(np.asarray(tokens, np.int32)[:, None], positions)

    def _logits(
        self, tokens: npt.NDArray[np.int32], positions: npt.NDArray[np.int32]
    ) -> StepLogits:
        draw: Draw | None = None
        if self.session.draws:
            # Tokens are not used: any settings do.
            count = len(tokens)
            draw = Draw(np.ones((count, 3), np.float32), np.zeros(count, np.float32))
        logits = self.session.step(tokens, positions, draw=draw).logits
        assert logits is not None
        return logits
