"""The loop of ``sample``: prompts, then one token of each sequence at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt

from graphgen.runtime.aws_tnx.tnx_arguments import Ints, Logits
from graphgen.runtime.sampling import GREEDY, Sampling, choose_token
from graphgen.runtime.sampling.on_device_sampling import draw_of
from graphgen.runtime.session.session import RowResults, Session
from graphgen.runtime.session.step_call import Draw

if TYPE_CHECKING:
    import torch

# The scores that a caller sees, from logits.
Scores = Callable[[Logits], Logits]


class Streamer(Protocol):
    """Takes tokens as soon as they are chosen; transformers' streamers are of this kind."""

    def put(self, value: torch.Tensor) -> object:
        """Take integers [B,1]."""
        ...

    def end(self) -> object:
        """Take the end of generation."""
        ...


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One call of ``sample``.

    Attributes:
        ids: s32 [B,S], prompts padded on the left.
        starts: s32 [B], padding of each prompt.
        length: longest sequence, padding included.
        settings: of each sequence.
        eos: tokens that end a sequence.
        streamer: notified of each token.
        stopping: asked after each token.
        scores: from logits to what the caller sees.
    """

    ids: Ints
    starts: Ints
    length: int
    settings: Sequence[Sampling]
    eos: Sequence[int]
    streamer: Streamer | None
    stopping: Callable[[torch.Tensor, torch.Tensor | None], bool | torch.Tensor] | None
    scores: Scores


@dataclass(slots=True)
class SampleLoop:
    """The state of one call.

    Attributes:
        session: programs, weights and cache.
        request: the call.
        ids: s32 [B,S'], prompts and new tokens.
        done: bool [B], sequences that have ended.
        scores: f32 [B,V] of each new token.
    """

    session: Session
    request: SampleRequest
    ids: Ints
    done: npt.NDArray[np.bool_]
    scores: list[Logits] = field(default_factory=list[Logits])

    def run(self) -> None:
        """Generate until every sequence has ended."""
        request = self.request
        if request.streamer is not None and getattr(request.streamer, "skip_prompt", False):
            # Such a streamer drops the first tokens it is given, which are the prompt's.
            request.streamer.put(as_tensor(request.ids))
        positions = np.arange(self.ids.shape[1], dtype=np.int32)[None] - request.starts[:, None]
        if self.ids.shape[1] < request.length:
            output = run_prompts(self.session, self.ids, positions, None, self._draw())
            while self._append(output):
                output = self._next()
        if request.streamer is not None:
            request.streamer.end()

    def _next(self) -> RowResults:
        """Run one step of the sequences that go on."""
        position = self.ids.shape[1] - 1 - self.request.starts
        positions = np.where(self.done, -1, position).astype(np.int32)[:, None]
        return self.session.step(self.ids[:, -1:], positions, None, self._draw())

    def _append(self, output: RowResults) -> bool:
        """Append the next tokens; False at the end of all sequences."""
        request = self.request
        seen = None
        if output.logits is not None and not self.session.chooses:
            seen = request.scores(np.where(self.done[:, None], np.float32(0), output.logits))
            self.scores.append(seen)
        tokens = self._choose(output)
        self.ids = np.concatenate([self.ids, tokens[:, None]], 1)
        self.done = self.done | np.isin(tokens, request.eos)
        if request.streamer is not None:
            request.streamer.put(as_tensor(tokens[:, None]))
        if request.stopping is not None:
            scores = None if seen is None else as_tensor(seen)
            ends = request.stopping(as_tensor(self.ids), scores)
            self.done = self.done | np.asarray(ends, np.bool_)
        return self.ids.shape[1] < request.length and not bool(self.done.all())

    def _choose(self, output: RowResults) -> Ints:
        """The next token of each sequence; of those that have ended an end token."""
        pad = self.request.eos[0] if self.request.eos else 0
        tokens = np.full(len(self.done), pad, np.int32)
        step = self.ids.shape[1] - self.request.ids.shape[1]
        for row in np.flatnonzero(~self.done).tolist():
            how = self.request.settings[row]
            if self.session.chooses:
                tokens[row] = cast(Ints, output.tokens)[row]
            elif how == GREEDY:
                tokens[row] = cast(Logits, output.logits)[row].argmax()
            else:
                sequence: list[int] = self.ids[row, self.request.starts[row] :].tolist()
                logits = cast(Logits, output.logits)[row]
                tokens[row] = choose_token(logits, sequence, how, row, step)
        return tokens

    def _draw(self) -> Draw | None:
        step = self.ids.shape[1] - self.request.ids.shape[1]
        return draw_rows(self.session, self.request.settings, [step] * len(self.done))


def draw_rows(session: Session, settings: Sequence[Sampling], steps: Sequence[int]) -> Draw | None:
    """The sampling inputs of a call with fewer rows than the cache, or as many."""
    drawn = draw_of(session, settings, steps)
    return None if drawn is None else drawn.of(np.arange(len(settings)))


def run_prompts(
    session: Session, ids: Ints, positions: Ints, seq_ids: Ints | None, draw: Draw | None
) -> RowResults:
    """Run prompts; what is beyond the largest prompt bucket goes through the decode programs.

    Args:
        session: programs, weights and cache.
        ids: s32 [B,S].
        positions: s32 [B,S], consecutive from 0; negative for padding.
        seq_ids: s32 [B], rows of the cache; by default 0 to B - 1.
        draw: sampling inputs.
    """
    lengths = (positions >= 0).sum(1)
    # Padding moves to the right, so that the first tokens of all prompts are in the first columns.
    order = np.argsort(positions < 0, axis=1, kind="stable")[:, : lengths.max()]
    ids, positions = np.take_along_axis(ids, order, 1), np.take_along_axis(positions, order, 1)
    positions = np.where(positions < 0, np.int32(-1), positions)
    largest = max(session.table.buckets("prefill"), default=0)
    if not 0 < largest < lengths.max():
        return session.step(ids, positions, seq_ids, draw)
    head = session.step(ids[:, :largest], positions[:, :largest], seq_ids, draw)
    tail = session.step(ids[:, largest:], positions[:, largest:], seq_ids, draw)
    long = lengths > largest
    return RowResults(
        {
            name: np.where(long.reshape(-1, *[1] * (array.ndim - 1)), tail.outputs[name], array)
            for name, array in head.outputs.items()
        }
    )


def as_tensor(array: npt.NDArray[np.generic]) -> torch.Tensor:
    """A PyTorch tensor of its own; integers become int64."""
    import torch

    wide = array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array.copy()
    return torch.from_numpy(wide)  # pyright: ignore[reportUnknownMemberType]


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
