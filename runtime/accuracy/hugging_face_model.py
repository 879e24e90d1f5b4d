"""A transformers model as one side of a check; transformers and torch are imported at its use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.step_model import HiddenStates, StepLogits


def load_hugging_face(folder: Path) -> HuggingFaceModel:
    """Load a checkpoint folder by ``AutoModelForCausalLM``, in f32 (GG0601, GG0705)."""
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise GraphgenError(
            "GG0705",
            f"a transformers reference needs the package '{error.name}', which is not installed",
            help="pip install 'transformers>=5.23,<6' torch, or leave --reference-by out",
        ) from error
    try:
        load = cast("Callable[..., Any]", AutoModelForCausalLM.from_pretrained)  # pyright: ignore[reportUnknownMemberType]
        model = load(folder, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise GraphgenError(
            "GG0601",
            f"transformers cannot read {folder}: {str(error).splitlines()[0]}",
            help="--reference-by graphgen reads checkpoint folders and GGUF files by itself",
        ) from error
    return HuggingFaceModel(model.eval())


class HuggingFaceModel:
    """The step model and the layers of a transformers model; each row has a cache of its own.

    Args:
        model: a causal language model of transformers, in any element type.
    """

    def __init__(self, model: object) -> None:
        # torch's and transformers' types are not known where they are not installed.
        self._model = cast("Callable[..., Any]", model)
        self._caches: list[object] = []

    def start(self, prompts: Sequence[Sequence[int]]) -> StepLogits:
        """See :meth:`~graphgen.runtime.accuracy.step_model.StepModel.start`."""
        self._caches = [None] * len(prompts)
        return self._advance(prompts)

    def step(self, tokens: Sequence[int]) -> StepLogits:
        """See :meth:`~graphgen.runtime.accuracy.step_model.StepModel.step`."""
        return self._advance([[token] for token in tokens])

    def hidden_states(self, tokens: Sequence[int]) -> list[HiddenStates]:
        """See :meth:`~graphgen.runtime.accuracy.step_model.LayerModel.hidden_states`."""
        import torch

        with torch.no_grad():
            given = self._model(torch.tensor([list(tokens)]), output_hidden_states=True)
        return [state[0].float().numpy() for state in given.hidden_states]

    def _advance(self, parts: Sequence[Sequence[int]]) -> StepLogits:
        import torch

        rows: list[HiddenStates] = []
        with torch.no_grad():
            for row, part in enumerate(parts):
                given = self._model(
                    torch.tensor([list(part)]), past_key_values=self._caches[row], use_cache=True
                )
                self._caches[row] = given.past_key_values
                rows.append(given.logits[0, -1].float().numpy())
        return np.stack(rows)
