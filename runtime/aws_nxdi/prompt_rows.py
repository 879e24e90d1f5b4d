"""Prompts of one batch, padded on either side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Prompts in the three layouts that generation needs.

    Attributes:
        given: integers [B,S], as the caller padded them.
        left: integers [B,S], the same with all padding before the tokens, as processors and
            stopping criteria see them.
        right: integers [B,L] with all padding after the tokens, L the longest prompt.
        mask: integers [B,L]; 1 for the tokens of ``right``.
        positions: integers [B,L], of the tokens of ``right``, 1 at padding.
        lengths: integers [B], tokens of each prompt.
        padding: integers [B], places of :attr:`left` before the tokens.
    """

    given: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    lengths: torch.Tensor
    padding: torch.Tensor

    def restored(self, sequences: torch.Tensor) -> torch.Tensor:
        """Sequences [B,S+N] that start with :attr:`left`, with :attr:`given` in its place."""
        import torch

        return torch.cat([self.given, sequences[:, self.given.shape[1] :]], dim=1)

    def cut(self, most: int) -> PromptRows:
        """The same with the first ``most`` tokens of longer prompts in the cache.

        Processors and criteria see the prompts as they are.
        """
        right, mask, positions = (
            part[:, :most] for part in (self.right, self.mask, self.positions)
        )
        lengths = self.lengths.clamp(max=most)
        return PromptRows(self.given, self.left, right, mask, positions, lengths, self.padding)


def prompt_rows(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> PromptRows:
    """Read a padded batch; a token's position is the number of tokens before it in its row.

    Args:
        input_ids: integers [B,S].
        attention_mask: [B,S], 0 at padding, on either side or both; ``None`` for no padding.

    Raises:
        GraphgenError: GG0402 for a mask of another shape, GG0702 for a row without a token.
    """
    import torch

    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    check_mask(input_ids, attention_mask)
    used = (attention_mask != 0).long()
    lengths = used.sum(1)
    if not bool(lengths.all()):
        row = int((lengths == 0).nonzero()[0])
        raise GraphgenError(
            "GG0702", f"prompt {row + 1} has no token: its attention_mask is 0 everywhere"
        )
    longest = int(lengths.max())
    left = input_ids.gather(1, used.argsort(dim=1, stable=True))
    right = input_ids.gather(1, (1 - used).argsort(dim=1, stable=True))[:, :longest]
    counted = torch.arange(longest)[None, :]
    mask = counted < lengths[:, None]
    positions = torch.where(mask, counted, 1)
    padding = input_ids.shape[1] - lengths
    return PromptRows(input_ids, left, right, mask.long(), positions, lengths, padding)


def check_mask(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> None:
    """Refuse a mask of another shape than the tokens (GG0402)."""
    if attention_mask.shape != input_ids.shape:
        raise GraphgenError(
            "GG0402",
            f"attention_mask is {[*attention_mask.shape]}, input_ids {[*input_ids.shape]}",
            help="give a 1 for each token and a 0 for padding",
        )


def repeated(ids: object, times: int) -> object:
    """The adapter of each answer, of as many to each prompt, in a list; other kinds stay."""
    listed = ids.tolist() if hasattr(ids, "tolist") else ids  # pyright: ignore
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        return ids
    return [one for one in cast("Sequence[object]", listed) for _ in range(times)]
