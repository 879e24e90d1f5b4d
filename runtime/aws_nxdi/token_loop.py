"""The loop of ``generate``: prefill, then one token of each row a step, until every row is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import torch  # noqa: TID253 - imported by the adapter alone, which needs torch

from graphgen.runtime.aws_nxdi.generation_model import (
    DoneRows,
    GenerationModel,
    GenerationSettings,
    ModelOutput,
    ScoreProcessor,
)
from graphgen.runtime.aws_nxdi.prompt_rows import PromptRows
from graphgen.runtime.aws_nxdi.steps_ahead import StepsAhead


class TokenStreamer(Protocol):
    """A streamer of transformers."""

    def put(self, value: torch.Tensor) -> None:
        """Take the prompts [B,S], then the tokens [B] of each step."""
        ...

    def end(self) -> None:
        """Take the end of generation."""
        ...


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The output of a step of which tokens alone are read."""

    tokens: torch.Tensor
    logits: None = None


@dataclass(slots=True)
class TokenLoop:
    """Generation over one batch.

    A row that is done takes part until the last one is, with its padding token as input: so it does
    in transformers, which draws random numbers for it too.

    Attributes:
        model: forgets earlier sequences first.
        prompts: the batch.
        processors: applied to logits; unused where programs choose tokens.
        criteria: decide when a row is done.
        generation: the settings.
        pad: integer [], follows the end of sequence; ``None`` if no token ends a sequence.
        streamer: gets the tokens of each step.
        sampling_params: f32 [B,3] for programs that choose tokens; ``None`` for none.
        adapter_ids: adapter of each row; ``None`` for the base model.
        ahead: starts steps before tokens are read; ``None`` for one step after the other.
        hook: called with the inputs of each call of the model.
        scores: processed logits f32 [B,V] of each step, if requested.
        logits: logits f32 [B,V] of each step, if requested.
    """

    model: GenerationModel
    prompts: PromptRows
    processors: Sequence[ScoreProcessor]
    criteria: DoneRows
    generation: GenerationSettings
    pad: torch.Tensor | None
    streamer: TokenStreamer | None
    sampling_params: torch.Tensor | None
    hook: Callable[..., None] | None = None
    adapter_ids: object = None
    ahead: StepsAhead | None = None
    scores: tuple[torch.Tensor, ...] | None = None
    logits: tuple[torch.Tensor, ...] | None = None
    _seq_ids: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Find out which outputs are requested."""
        whole = bool(self.generation.return_dict_in_generate)
        self.scores = () if whole and self.generation.output_scores else None
        self.logits = () if whole and self.generation.output_logits else None
        self._seq_ids = torch.arange(len(self.prompts.lengths))

    def run(self) -> torch.Tensor:
        """Generate: integers [B,S+N], the prompts as they were given and the new tokens."""
        ids, positions = self.prompts.left, self.prompts.lengths
        unfinished = torch.ones_like(positions)
        output = self._prefill()
        while True:
            tokens = self._choose(output, ids)
            if self.pad is not None:
                tokens = tokens * unfinished + self.pad * (1 - unfinished)
            ids = torch.cat([ids, tokens[:, None]], dim=1)
            unfinished = unfinished & ~self.criteria(ids, self.scores)
            if self.streamer is not None:
                self.streamer.put(tokens)
            if not bool(unfinished.any()):
                break
            output = self._decode(tokens, positions, ids.shape[1])
            positions = positions + 1
        if self.ahead is not None:
            self.ahead.end(positions.numpy().astype(np.int32))
        if self.streamer is not None:
            self.streamer.end()
        return self.prompts.restored(ids)

    def _prefill(self) -> ModelOutput:
        self.model.reset()
        output = self.model.forward(
            self.prompts.right,
            seq_ids=self._seq_ids,
            attention_mask=self.prompts.mask,
            position_ids=self.prompts.positions,
            sampling_params=self.sampling_params,
            adapter_ids=self.adapter_ids,
            input_capture_hook=self.hook,
        )
        return cast(ModelOutput, output)

    def _decode(self, tokens: torch.Tensor, positions: torch.Tensor, length: int) -> ModelOutput:
        """One step; positions alone say which slots are attended, so no mask grows.

        Args:
            tokens: integers [B], the inputs.
            positions: integers [B], theirs.
            length: of the sequences so far, padding included.
        """
        if self.ahead is not None:
            given, places = tokens.numpy().astype(np.int32), positions.numpy().astype(np.int32)
            more = self.generation.max_length - length - 1
            return _Chosen(torch.tensor(self.ahead.tokens(given, places, more)))
        output = self.model.forward(
            tokens[:, None],
            seq_ids=self._seq_ids,
            position_ids=positions[:, None],
            sampling_params=self.sampling_params,
            input_capture_hook=self.hook,
        )
        return cast(ModelOutput, output)

    def _choose(self, output: ModelOutput, ids: torch.Tensor) -> torch.Tensor:
        """The next token [B] of each row."""
        if output.tokens is not None:
            if self.logits is not None and output.logits is not None:
                self.logits += (output.logits[:, -1].to(torch.float32, copy=True),)
            return output.tokens.to(ids.dtype)
        assert output.logits is not None
        plain = output.logits[:, -1]
        if not self.processors and self.scores is None and self.logits is None:
            return self._pick(plain.to(torch.float32))
        # A copy, because processors may write into it.
        logits = plain.to(torch.float32, copy=True)
        scores = logits
        for each in self.processors:
            scores = each(ids, scores)
        if self.scores is not None:
            self.scores += (scores,)
        if self.logits is not None:
            self.logits += (logits,)
        return self._pick(scores)

    def _pick(self, scores: torch.Tensor) -> torch.Tensor:
        if not self.generation.do_sample:
            return scores.argmax(-1)
        # In the way of transformers, which decides how random numbers become tokens.
        probabilities = torch.nn.functional.softmax(scores, dim=-1)
        return torch.multinomial(probabilities, num_samples=1).squeeze(1)
