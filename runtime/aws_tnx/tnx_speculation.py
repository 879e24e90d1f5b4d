"""transformers-neuronx's ``SpeculativeGenerator``: a draft proposes, a target verifies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.tnx_config import exclusion
from graphgen.runtime.aws_nxdi.assisted_decoding import check_draft
from graphgen.runtime.aws_tnx.tnx_arguments import (
    HostChoice,
    Ids,
    Ints,
    matrix,
    random_seed,
    refuse_unknown,
)
from graphgen.runtime.aws_tnx.tnx_model import TnxModel
from graphgen.runtime.aws_tnx.tnx_sample import as_tensor
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.speculation.draft_model import DraftModel
from graphgen.runtime.speculation.speculator import Speculator

if TYPE_CHECKING:
    import torch


class SpeculativeGenerator:
    """Speculative sampling with two models, for any batch size.

    Args:
        draft: proposes k - 1 tokens a step.
        target: compiled after ``enable_speculative_decoder(k)``.
        k: tokens of a sequence that a step verifies: the last one, and those proposed.
        acceptor: refused; tokens are accepted as ``docs/speculation.md`` says.

    Raises:
        GraphgenError: GG0903 for programs that verify fewer tokens, or choose them; GG0904 for an
            acceptor, GG0705 for fewer than two tokens, GG0908 for a model that is not compiled.
    """

    def __init__(
        self, draft: TnxModel, target: TnxModel, k: int = 2, acceptor: object = None
    ) -> None:
        if acceptor is not None:
            raise GraphgenError(
                "GG0904",
                "SpeculativeGenerator: an acceptor of the caller is not built yet",
                help="leave acceptor out: tokens have the distribution of the target",
            )
        if draft is target:
            raise exclusion(
                "draft and target are one model",
                "its cache cannot hold the sequences of both",
                "another model of the same checkpoint",
            )
        if target.session.chooses:
            raise exclusion(
                "on_device_generation",
                "tokens are verified by logits",
                "a target compiled without on_device_generation",
            )
        verifies = target.session.table.verifies
        if verifies < k:
            raise exclusion(
                f"k is {k}",
                f"the target verifies {verifies} tokens",
                f"target.enable_speculative_decoder({k}) before to_neuron()",
            )
        check_draft(draft.session, 1)
        self.draft = draft
        self.target = target
        self.speculator = Speculator(DraftModel(draft.session, target.session.vocabulary), k)

    def sample(
        self,
        input_ids: Ids,
        sequence_length: int,
        start_ids: Ids | None = None,
        top_k: int = 0,
        top_p: float | None = None,
        temperature: float | None = None,
        eos_token_override: int | None = None,
        **unknown: object,
    ) -> torch.Tensor:
        """Generate until every sequence has ended, or is ``sequence_length`` tokens long.

        Random numbers follow from PyTorch's: ``torch.manual_seed`` repeats a call.

        Args:
            input_ids: integers [B,S], prompts padded on the left.
            sequence_length: of prompt, padding and new tokens.
            start_ids: integers [B], padding of each prompt; ``None`` for none.
            top_k: number of best tokens to draw from; 1 for the best one, 0 for all.
            top_p: probability that the best tokens to draw from reach; 1.0 by default.
            temperature: scores are divided by it; 1.0 by default.
            eos_token_override: token that ends a sequence, instead of the model's.
            unknown: refused.

        Returns:
            integers [B,S'], prompts and new tokens; sequences that end early are filled with the
            token that ends them.

        Raises:
            GraphgenError: GG0901 for an unknown argument, GG0701, GG0705.
        """
        refuse_unknown(unknown)
        ids, starts = self.target.prompts_of(matrix(input_ids, "input_ids"), start_ids)
        check_draft(self.draft.session, len(ids))
        new = self.target.length_of(sequence_length, ids.shape[1], starts) - ids.shape[1]
        if not new:
            return as_tensor(ids)
        eos = self.target.end_tokens() if eos_token_override is None else [eos_token_override]
        how = HostChoice(top_k, top_p, temperature, None).sampling(random_seed())
        prompts = [row[start:].tolist() for row, start in zip(ids, starts, strict=True)]
        request = GenerationRequest(new, eos, sampling=how)
        done, _ = generate(self.target.session, prompts, request, decode=self.speculator.decode)
        return as_tensor(_joined(ids, [answer.tokens for answer in done], eos))


def _joined(ids: Ints, made: list[list[int]], eos: list[int]) -> Ints:
    """Prompts s32 [B,S] and new tokens, filled up with an end token."""
    new = np.full((len(ids), max(map(len, made))), eos[0] if eos else 0, np.int32)
    for row, tokens in enumerate(made):
        new[row, : len(tokens)] = tokens
    return np.concatenate([ids, new], 1)
