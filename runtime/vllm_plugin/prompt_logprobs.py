"""Logprobs of the tokens of prompts, collected over the steps that process a prompt."""

# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from vllm.v1.outputs import LogprobsTensors

from graphgen.runtime.launching.row_results import Logits
from graphgen.runtime.vllm_plugin.scheduled_rows import LogitsReader


class PromptLogprobs:
    """The requests that ask for logprobs of their prompts, by id.

    Args:
        sampler: vLLM's, which ranks tokens.
        vocabulary: number of logits.
    """

    def __init__(self, sampler: Any, vocabulary: int) -> None:
        self._sampler: Final = sampler
        self._vocabulary: Final = vocabulary
        self._started: dict[str, Any] = {}

    def add(self, request: Any) -> None:
        """Note a request that starts, if it asks for them."""
        count = request.sampling_params.prompt_logprobs
        if count is not None:
            columns = 1 + (self._vocabulary if count < 0 else count)
            made = LogprobsTensors.empty_cpu(len(request.prompt_token_ids) - 1, columns)
            self._started[request.req_id] = made

    def forget(self, id: str) -> None:
        """Leave out a request that is finished."""
        self._started.pop(id, None)

    def reader(self, request: Any) -> LogitsReader | None:
        """Reads the logits of a request's tokens in a step; ``None`` where none is to be read."""
        tensors = self._started.get(request.req_id)
        if tensors is None:
            return None
        start, prompt = request.num_computed_tokens, request.prompt_token_ids

        def read(first: int, logits: Logits) -> None:
            begin = start + first
            following = prompt[begin + 1 : begin + 1 + len(logits)]
            if following:
                self._rank(tensors, begin, torch.from_numpy(logits[: len(following)]), following)

        return read

    def complete(self, ends: Mapping[str, int], requests: Mapping[str, Any]) -> dict[str, Any]:
        """Collected logprobs of the prompts that a step has processed to their end.

        Args:
            ends: by id, the number of tokens after the step.
            requests: states by id.
        """
        ended = [
            id
            for id in self._started.keys() & ends.keys()
            if ends[id] >= len(requests[id].prompt_token_ids)
        ]
        return {id: self._started.pop(id) for id in ended}

    def _rank(self, tensors: Any, begin: int, logits: torch.Tensor, following: list[int]) -> None:
        """Note the scores of the tokens that follow, and of the best ones."""
        sampler = self._sampler
        is_plain = sampler.logprobs_mode in ("raw_logits", "processed_logits")
        scores = logits if is_plain else sampler.compute_logprobs(logits)
        columns = tensors.logprobs.shape[1] - 1
        found = sampler.gather_logprobs(scores, columns, torch.tensor(following))
        where = slice(begin, begin + len(following))
        tensors.logprob_token_ids[where] = found.logprob_token_ids
        tensors.logprobs[where] = found.logprobs
        tensors.selected_token_ranks[where] = found.selected_token_ranks
