"""The part of an application that generation uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

# A count to as many numbers in [0, 1).
RandomNumbers = Callable[[int], npt.NDArray[np.float64]]


# Scores f32 [B,V] of the sequences so far, integers [B,N], to new scores: a logits processor.
ScoreProcessor = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
# The sequences so far, and the scores of each step if they are kept, to the rows that are done.
DoneRows = Callable[["torch.Tensor", "tuple[torch.Tensor, ...] | None"], "torch.Tensor"]


class GenerationSettings(Protocol):
    """The part of transformers' ``GenerationConfig`` that is read.

    Attributes:
        do_sample: draw tokens.
        top_k, top_p, temperature: filters of scores.
        output_scores, output_logits, return_dict_in_generate: what is returned.
        num_return_sequences: answers to each prompt.
        max_length: tokens of a sequence, padding of prompts included.
    """

    do_sample: bool | None
    top_k: int | None
    top_p: float | None
    temperature: float | None
    output_scores: bool | None
    output_logits: bool | None
    return_dict_in_generate: bool | None
    num_return_sequences: int | None
    max_length: int


class AttributeValues(Protocol):
    """A configuration of the table of attributes."""

    def value(self, name: str) -> object:
        """The value of an attribute."""
        ...

    def is_given(self, name: str) -> bool:
        """True for an attribute that somebody set."""
        ...


class ModelAttributes(Protocol):
    """The configuration of a model."""

    def to_hf(self) -> Mapping[str, object]:
        """The attributes as a ``config.json``."""
        ...


class ModelOutput(Protocol):
    """The result of one call.

    Attributes:
        logits: f32 [B,1,V], or ``None``.
        tokens: integers [B], the tokens that programs chose, or ``None``.
    """

    @property
    def logits(self) -> torch.Tensor | None: ...  # noqa: D102
    @property
    def tokens(self) -> torch.Tensor | None: ...  # noqa: D102


class GenerationModel(Protocol):
    """A loaded application: see ``NeuronBaseForCausalLM``.

    Attributes:
        model_path: the checkpoint, or a compiled folder.
        random: the random numbers of programs that draw.
    """

    model_path: str
    random: RandomNumbers

    @property
    def config(self) -> ModelAttributes:
        """The model's attributes."""
        ...

    @property
    def neuron_config(self) -> AttributeValues:
        """The attributes of compilation and of running."""
        ...

    def forward(
        self,
        input_ids: torch.Tensor,
        seq_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sampling_params: torch.Tensor | None = None,
        *,
        adapter_ids: object = None,
        input_capture_hook: Callable[..., None] | None = None,
    ) -> object:
        """Run prompts, or one more token of each sequence: a :class:`ModelOutput`."""
        ...

    def reset(self) -> None:
        """Forget all sequences."""
        ...

    def order_rows(self, sources: Sequence[int]) -> None:
        """Let the first rows of the cache become what rows ``sources`` were."""
        ...
