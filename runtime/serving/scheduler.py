"""Assign requests to rows, and choose the rows of each launch.

A request waits, then has a row until it is finished. Invariants after every step:

* a row belongs to at most one request, and a request has at most one row;
* requests have rows in the order of their *turn*, ``arrival + patience * priority``: finitely many
  requests ever come before one, so that it has a row at last and keeps it;
* a request waits on, although a row is free, while one with an earlier turn processes a prompt that
  begins alike, and then copies its row: one prompt with several answers is processed once. It waits
  for requests that have rows only, so no two wait for each other;
* a preempted request keeps its tokens; its next row processes them again. A token in flight when it
  lost its row is read before it gets another one;
* the row of a request holds the beginning of its text, and nothing of another request;
* a request with an adapter has a row only while the adapter has a slot, which stays pinned. While
  the adapter is read, later requests go on; where every slot is pinned, requests of later turns
  lose their rows for it;
* with a paged cache a request has blocks for its prompt when it gets a row. Where blocks run out as
  answers grow, the request whose turn is last loses its row, so that the first one always goes on;
* a request for whose text there are too few blocks is passed by later ones that have room; as many
  are passed at a time as there are rows. Those of later turns lose their rows for it as soon as it
  fits beside the others, which are finitely many: it waits for these only, as without passing.

With launches in flight (``async_mode`` of the engine) a row's next token is launched before the
last one is read. A request that ends by its number of tokens takes no launch too many; one that
ends by a token or a stop string has taken one, whose token is dropped and whose place in the row is
written again by the next owner. A launch goes through the program of the row that is longest after
it, launches in flight counted, so rows change buckets at the lengths at which they do without
``async_mode``.

Stages of a pipeline work on as many groups of rows at once. Answers are launched by one group a
step, of the rows whose last token is read, and the oldest launch is read when each stage has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphgen.runtime.serving.cache_pool import CachePool
from graphgen.runtime.serving.row_pool import shared_length
from graphgen.runtime.serving.serving_request import RequestProgress

if TYPE_CHECKING:
    from graphgen.runtime.lora.adapter_store import AdapterStore
    from graphgen.runtime.session.adapter_slots import PreparedAdapter

# The slot of a row without an adapter.
NO_ADAPTER = -1


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Limits of the launches of a step.

    Attributes:
        chunk: largest number of prompt tokens that one launch takes of a row; 0 for all of them.
        prompts: largest number of rows of a launch that processes prompts.
        patience: steps by which a request may come later than one of the next lower priority and
            still go before it.
        groups: into which the rows that answer are divided, with a launch in flight each; 1 for
            all rows in one launch.
    """

    chunk: int = 0
    prompts: int = 1
    patience: int = 256
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Launch:
    """Rows of one launch, each with the number of tokens that it takes.

    Attributes:
        parts: requests that have rows, and numbers of their next tokens.
        answers: each row takes the one token before its next one.
    """

    parts: tuple[tuple[RequestProgress, int], ...]
    answers: bool = False


@dataclass(slots=True)
class Scheduler:
    """Requests that wait and requests that have rows.

    Attributes:
        pool: the rows, and the blocks of a paged cache.
        options: the limits.
        waiting: requests without a row.
        running: requests with a row, in the order in which they got it.
        steps: number of steps so far.
        adapters: those that requests may have; ``None`` for none.
        broken: requests without a row whose adapter could not be loaded, with the error.
    """

    pool: CachePool
    options: SchedulerOptions = SchedulerOptions()
    waiting: list[RequestProgress] = field(default_factory=list[RequestProgress])
    running: list[RequestProgress] = field(default_factory=list[RequestProgress])
    steps: int = 0
    adapters: AdapterStore[PreparedAdapter] | None = None
    broken: list[tuple[RequestProgress, Exception]] = field(
        default_factory=list[tuple[RequestProgress, Exception]]
    )
    # Launches of prompts since answers had one.
    _held: int = 0

    def enter(self, progress: RequestProgress) -> None:
        """Let a request wait for a row."""
        progress.turn = self.steps + self.options.patience * progress.request.priority
        self._wait(progress)

    def _wait(self, progress: RequestProgress) -> None:
        self.waiting.append(progress)
        if self.adapters is not None and progress.adapter is not None:
            self.adapters.want(progress.adapter)

    def leave(self, progress: RequestProgress) -> None:
        """Remove a request, wherever it is, and free its row."""
        if progress.row is None:
            self._no_more_waits(progress)
            return
        self.running.remove(progress)
        self.pool.give_back(progress.row)
        progress.row = None
        self._release(progress)

    def _no_more_waits(self, progress: RequestProgress) -> None:
        self.waiting.remove(progress)
        if self.adapters is not None and progress.adapter is not None:
            self.adapters.unwant(progress.adapter)

    def _release(self, progress: RequestProgress) -> None:
        if self.adapters is not None and progress.adapter is not None:
            self.adapters.release(progress.adapter)

    def admit(self) -> None:
        """Give rows to waiting requests, the most urgent first; preempt less urgent ones.

        Then every row has room for the tokens of this step.
        """
        self.steps += 1
        skipped = 0
        if self.adapters is not None:
            self.adapters.poll()
        for progress in sorted(self.waiting, key=_priority):
            if self._shares_soon(progress) or not self._seated(progress):
                skipped += 1
                # Later requests may use the room, but the search has to end.
                if skipped > len(self.pool.rows):
                    break
        self._make_room()

    def _seated(self, progress: RequestProgress) -> bool:
        """Give a request a row, or let it wait for its adapter; False without room."""
        slot = self._slot(progress)
        if slot is None or self._give_row(progress, slot):
            return True
        self._release(progress)
        return False

    def _give_row(self, progress: RequestProgress, slot: int) -> bool:
        """Give a request a row, one of less urgent requests if need be; False without room."""
        text = progress.cached_text
        taken = self.pool.take(text)
        if taken is None:
            rows = [other.row for other in self._later(progress) if other.row is not None]
            # No row is lost for a request that has no room even then.
            if not self.pool.fits(text, rows):
                return False
            while taken is None:
                self._preempt(max(self.running, key=_priority))
                taken = self.pool.take(text)
        self._no_more_waits(progress)
        progress.row, progress.processed = taken
        self.running.append(progress)
        if self.adapters is not None:
            self.adapters.assign(progress.row, slot)
        return True

    def _later(self, progress: RequestProgress) -> list[RequestProgress]:
        """The less urgent requests that have rows."""
        return [other for other in self.running if other.turn > progress.turn]

    def _slot(self, progress: RequestProgress) -> int | None:
        """The pinned slot of a request's adapter, -1 for none; ``None`` while there is none yet.

        An adapter that cannot be loaded puts the request into :attr:`broken`.
        """
        adapters, adapter = self.adapters, progress.adapter
        if adapters is None or adapter is None:
            return NO_ADAPTER
        later = self._later(progress)
        if adapter.slot is None and adapter.prepared is not None and not (self.pool.free or later):
            # Another adapter keeps the slot until there is a row.
            return None
        if adapters.lacks_slot(adapter):
            freed = adapters.freed_by([other.adapter for other in later if other.adapter])
            if freed is None:
                return None
            for other in later:
                if other.adapter is freed:
                    self._preempt(other)
        try:
            return adapters.acquire(adapter)
        except Exception as error:
            self.broken.append((progress, error))
            return None

    def _make_room(self) -> None:
        """Reserve room for the tokens of a step; preempt those whose turn is last for it.

        All at once before the first launch: a request that takes part in a launch keeps its row to
        the end of the step.
        """
        for progress in sorted(self.running, key=_priority):
            while progress.row is not None and not progress.spent:
                # A prompt that ends in the first launch takes its next token in the second one.
                more = self._count(progress) + (progress.remaining > 1)
                if self.pool.reserve(progress.row, progress.processed + more):
                    break
                self._preempt(max(self.running, key=_priority))

    def launches(self) -> Iterator[Launch]:
        """The launches of one step: one that processes prompts, then one token of every answer.

        The second launch takes what the first has finished. It is left out while
        :meth:`_hold_answers` says so: a launch of few answers takes as long as one of all rows.
        """
        prompts = sorted((p for p in self.running if p.remaining > 1), key=_priority)
        if prompts:
            chosen = prompts[: self.options.prompts]
            yield Launch(tuple((p, self._count(p)) for p in chosen))
        answers = [p for p in self.running if p.remaining == 1 and not p.spent]
        if self._hold_answers([p for p in prompts if p.remaining > 1], answers):
            return
        if self.options.groups > 1:
            answers = self._next_group(answers)
        if answers:
            yield Launch(tuple((p, 1) for p in answers), answers=True)

    def _hold_answers(
        self, prompts: Sequence[RequestProgress], answers: Sequence[RequestProgress]
    ) -> bool:
        """True if prompts go first: they outnumber the streams, and take few launches.

        As many launches of prompts as there are rows at most come between two tokens of an answer.

        Args:
            prompts: those that are not finished.
            answers: rows that could take a launch; those that wait for their second token do not
                stream yet.
        """
        streams = sum(len(p.tokens) + p.unread > 1 for p in answers)
        launches = sum(-(-p.remaining // self._count(p)) for p in prompts)
        holds = len(prompts) > streams and self._held + launches <= len(self.pool.rows)
        self._held = self._held + 1 if holds else 0
        return holds

    def _next_group(self, answers: Sequence[RequestProgress]) -> list[RequestProgress]:
        """The rows of one group: those that have waited longest, and none with an unread token."""
        size = -(-len(answers) // self.options.groups)
        ready = sorted([p for p in answers if not p.unread], key=lambda p: p.launched)[:size]
        for progress in ready:
            progress.launched = self.steps
        return ready

    def _count(self, progress: RequestProgress) -> int:
        """Tokens of a prompt's next launch."""
        if progress.request.prompt_logprobs is not None:
            # A launch gives the logits of its last token.
            return 1
        return min(progress.remaining, self.options.chunk or progress.remaining)

    def _shares_soon(self, progress: RequestProgress) -> bool:
        """True if an earlier request is processing tokens that a copy of its row will save."""
        if not self.pool.shares:
            return False
        text = progress.cached_text
        others = [
            other
            for other in self.running
            if other.remaining > 1 and _priority(other) < _priority(progress)
        ]
        soon = max((shared_length(other.cached_text, text[:-1]) for other in others), default=0)
        return soon > 0 and self.pool.is_worth(soon, self.pool.held(text), len(text))

    def _preempt(self, progress: RequestProgress) -> None:
        """Let a request wait again; it keeps its tokens."""
        self.leave(progress)
        progress.processed, progress.spent = 0, False
        progress.prompt_rows.clear()
        self._wait(progress)


def _priority(progress: RequestProgress) -> tuple[int, int]:
    """The smaller, the more urgent; of two alike the one that came first."""
    return progress.turn, progress.order
