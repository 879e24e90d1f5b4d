"""Stopping criteria of transformers-neuronx, under its names and calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class StoppingCriteria(ABC):
    """A rule that ends generation."""

    @abstractmethod
    def __call__(
        self, input_ids: torch.Tensor, scores: torch.Tensor | None, **kwargs: object
    ) -> bool | torch.Tensor:
        """True to stop, or for each sequence whether it ends.

        Args:
            input_ids: integers [B,S], prompts and new tokens.
            scores: f32 [B,V] of the last token; ``None`` from programs that choose tokens.
            kwargs: unused.
        """


Criterion = Callable[..., "bool | torch.Tensor"]


class StoppingCriteriaList(list[Criterion]):
    """Rules of which any ends generation."""

    def __call__(
        self, input_ids: torch.Tensor, scores: torch.Tensor | None, **kwargs: object
    ) -> bool | torch.Tensor:
        """Call every criterion; the arguments are those of :class:`StoppingCriteria`."""
        ends: bool | torch.Tensor = False
        for criterion in self:
            ends = criterion(input_ids, scores, **kwargs) | ends
        return ends
