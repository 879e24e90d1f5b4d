"""The serving engine: submit and cancel requests at any moment, and advance all of them by steps.

One step gives rows to waiting requests, launches the prompts' next chunks, then one token for every
row that answers, unless prompts go first (``Scheduler.launches``). Rows are independent of each
other, so the tokens of a request are those that it would get alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from graphgen.analysis.stage_chain import stage_count
from graphgen.errors import GraphgenError
from graphgen.runtime.sampling.on_device_sampling import check_choice, draw_for
from graphgen.runtime.serving.answer_text import AnswerText, Detokenizer
from graphgen.runtime.serving.cache_pool import pool_of
from graphgen.runtime.serving.request_choice import (
    MaskError,
    TokenLogprobs,
    logprobs_of,
    next_token,
)
from graphgen.runtime.serving.scheduler import Launch, Scheduler, SchedulerOptions
from graphgen.runtime.serving.serving_request import (
    Finish,
    RequestProgress,
    ServingRequest,
    TokenEvent,
)
from graphgen.runtime.serving.speculative_steps import (
    ProposedRow,
    SpeculativeSteps,
    row_of,
)
from graphgen.runtime.session.async_conditions import check_async
from graphgen.runtime.session.pending_step import DeviceToken, PendingStep
from graphgen.runtime.session.session import Logits, RowResults, Session, check_token_ids
from graphgen.runtime.session.step_call import packed
from graphgen.runtime.speculation.speculator import Speculator, check_in_step

if TYPE_CHECKING:
    from graphgen.runtime.lora.adapter_store import AdapterStore, StoredAdapter
    from graphgen.runtime.session.adapter_slots import PreparedAdapter


def check_request(session: Session, request: ServingRequest, *, text: bool) -> None:
    """Refuse a request that cannot be answered.

    Args:
        session: the programs.
        request: the request.
        text: the engine has a tokenizer.

    Raises:
        GraphgenError: GG0702 for an empty prompt, GG0706 for one with a token outside the
            vocabulary, GG0701 for one that no program takes, GG0705 for no new token and for
            settings that the programs or the engine do not have.
    """
    if not request.prompt:
        raise GraphgenError("GG0702", "the prompt is empty", help="give at least one token")
    check_token_ids(request.prompt, session.token_ids, "the prompt")
    if request.max_new_tokens < 1:
        raise GraphgenError("GG0705", "max_new_tokens must be at least 1")
    _check_stop(request, text=text)
    _check_logits(session, request)
    check_choice(session, [request.sampling])
    session.table.prompt_programs(1, len(request.prompt))
    _check_room(session, len(request.prompt))


def _check_room(session: Session, size: int) -> None:
    """Refuse a prompt that all blocks of a paged cache do not hold (GG0701)."""
    if session.blocks is not None and size > session.blocks.longest:
        raise GraphgenError(
            "GG0701",
            f"a prompt of {size} tokens has no room in the {session.blocks.blocks} blocks of "
            f"{session.blocks.block} tokens",
            help="compile with more blocks",
        )


def _check_stop(request: ServingRequest, *, text: bool) -> None:
    if "" in request.stop:
        raise GraphgenError("GG0705", "a stop string is empty", help="leave it out")
    if request.stop and not text:
        raise GraphgenError(
            "GG0705",
            "this engine has no tokenizer, so it cannot find stop strings",
            help="give the serving engine a tokenizer, or end answers by eos_ids",
        )


def _check_logits(session: Session, request: ServingRequest) -> None:
    """Refuse settings that need logits where the programs have chosen already, and bad values."""
    logits = session.vocabulary
    wanted = {"logprobs": request.logprobs, "prompt_logprobs": request.prompt_logprobs}
    for name, count in [(name, count) for name, count in wanted.items() if count is not None]:
        if not logits:
            raise _needs_logits(name, "with on-device-sampling{output_logits=true}, or ")
        if not 0 <= count <= logits:
            what = f"{name} is {count}, not from 0 to {logits}, the vocabulary"
            raise GraphgenError("GG0705", what)
    for name, given in _logits_settings(request).items():
        if session.chooses and given:
            raise _needs_logits(name)
    for token, added in request.logit_bias.items():
        if not 0 <= token < logits or not math.isfinite(added):
            raise GraphgenError(
                "GG0705",
                f"logit_bias of token {token} is {added}",
                help=f"give finite numbers, for tokens from 0 to {logits - 1}",
            )


def _logits_settings(request: ServingRequest) -> dict[str, bool]:
    """Names of settings that change logits, and whether a request has them (GG0705).

    Raises:
        GraphgenError: for a penalty that is infinite or NaN.
    """
    penalties = {
        "frequency_penalty": request.frequency_penalty,
        "presence_penalty": request.presence_penalty,
    }
    for name, value in penalties.items():
        if not math.isfinite(value):
            raise GraphgenError("GG0705", f"{name} is {value}, not a finite number")
    return {
        "logit_bias": bool(request.logit_bias),
        "mask": request.mask is not None,
        "repetition_penalty": request.sampling.repetition_penalty != 1,
        **{name: value != 0 for name, value in penalties.items()},
    }


def _needs_logits(name: str, also: str = "") -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"{name} needs logits, but these programs choose tokens themselves",
        help=f"compile {also}without --on-device-sampling",
    )


# Seconds, from any beginning.
Clock = Callable[[], float]
# Seconds of a step that has nothing to do but to wait for the files of adapters.
_PATIENCE = 0.02


class ServingEngine:
    """Answers requests over the rows of one session.

    One thread calls it; a server hands requests over.

    Args:
        session: its rows are emptied.
        options: the limits of a step; by default those of the session's programs.
        clock: what deadlines are measured with.
        tokenizer: gives the text of answers; ``None`` for answers of tokens only, without stop
            strings.
        async_mode: start the launches of a step before the tokens of the step before are read; the
            programs choose the tokens and hand them over on the devices. The same tokens come, a
            step later.
        prefix_sharing: process what texts have in common once; without it each text is processed
            whole, with the same tokens.
        speculator: proposes tokens that the rows which answer verify in one launch. Greedy tokens
            are the same; drawn ones have the same distribution.
        adapters: those that requests may name.

    Raises:
        GraphgenError: GG0705 for ``async_mode`` with programs that cannot do it or with a
            speculator, and for programs that verify fewer tokens than that.

    Attributes:
        scheduler: the requests that wait and that have rows.
    """

    def __init__(
        self,
        session: Session,
        options: SchedulerOptions | None = None,
        clock: Clock = time.monotonic,
        tokenizer: Detokenizer | None = None,
        *,
        async_mode: bool = False,
        prefix_sharing: bool = True,
        speculator: Speculator | None = None,
        adapters: AdapterStore[PreparedAdapter] | None = None,
    ) -> None:
        if speculator is not None:
            check_in_step(async_mode=async_mode)
        if async_mode:
            check_async(session)
        session.reset()
        limits = options or options_of(session)
        if speculator is not None or async_mode:
            limits = replace(limits, groups=1)
        self._async: Final = async_mode
        self._flight: list[_StartedLaunch] = []
        self._tokenizer: Final = tokenizer
        self._session: Final = session
        self._clock: Final = clock
        self.scheduler: Final = Scheduler(
            pool_of(session, prefix_sharing=prefix_sharing),
            limits,
            adapters=adapters,
        )
        self._speculation: Final = (
            None
            if speculator is None
            else SpeculativeSteps(session, self.scheduler.pool, speculator)
        )
        self._requests: dict[str, RequestProgress] = {}
        self._submitted = 0

    @property
    def busy(self) -> bool:
        """True while a request is not finished."""
        return bool(self._requests)

    def warm_up(self) -> None:
        """Compile or load every program, so that no request waits for it; no row changes.

        Without it a program is loaded, or compiled, at its first use.
        """
        self._session.warm_up(in_flight=self._async, copies=self._session.rows > 1)
        if self._speculation is not None:
            self._speculation.warm_up()
        if self.scheduler.adapters is not None and self._session.adapters is not None:
            self._session.adapters.warm_up()

    def submit(self, request: ServingRequest) -> None:
        """Enter a request; the next step begins with it, if a row is free.

        Raises:
            GraphgenError: GG0702 for an empty prompt, GG0706 for one with a token outside the
                vocabulary, GG0701 for one that no program takes, GG0705 for an id that is in use,
                for no new token, for an adapter that is not there, and for settings that the
                programs or this engine do not have.
        """
        if request.id in self._requests:
            raise GraphgenError("GG0705", f"there is a request '{request.id}' already")
        check_request(self._session, request, text=self._tokenizer is not None)
        progress = RequestProgress(request, self._submitted, adapter=self._adapter(request.adapter))
        if self._tokenizer is not None:
            after = () if request.text_of_its_own else request.prompt
            stream = self._tokenizer.stream(
                after, skip_special=request.skip_special, kept=request.kept_special
            )
            progress.written = AnswerText(stream, request.stop)
        self._submitted += 1
        self._requests[request.id] = progress
        self.scheduler.enter(progress)

    def _adapter(self, name: str) -> StoredAdapter[PreparedAdapter] | None:
        """The adapter of a name (GG0705); ``None`` for the empty one."""
        if not name:
            return None
        if self.scheduler.adapters is None:
            what = f"there is no adapter '{name}': the programs have none"
            raise GraphgenError("GG0705", what, help="compile with --max-loras")
        return self.scheduler.adapters.find(name)

    def cancel(self, id: str) -> TokenEvent | None:
        """End a request and free its row; ``None`` where it is finished already."""
        progress = self._requests.get(id)
        return None if progress is None else self._end(progress, Finish.CANCELLED)

    def step(self) -> list[TokenEvent]:
        """Advance every request that has a row; the events in the order in which they came.

        A launch or a copy of a row that raises ends the requests that have rows with an error, and
        empties all rows; those that wait go on.
        """
        events = list(self._expired())
        try:
            if any(progress.unread for progress in self.scheduler.waiting):
                # It has lost its row, and its text has to be whole before it gets another one.
                events += self._read(len(self._flight))
            earlier, started = len(self._flight), False
            self.scheduler.admit()
            events += self._broken()
            for launch in self.scheduler.launches():
                started = True
                if proposed := self._proposed(launch):
                    events += self._verify(proposed)
                    continue
                with self._launching(launch):
                    self._flight.append(self._start(launch))
                    if not self._async:
                        events += self._read(len(self._flight) - self.scheduler.options.groups + 1)
            events += self._read(earlier if self._async else int(not started))
        except Exception as error:
            events += self._failed(error)
        except BaseException as error:
            # An interrupt of the user: rows are in an unknown state, too.
            self._failed(error)
            raise
        if self.scheduler.adapters is not None and not self.scheduler.running:
            # All that are open wait for adapters; new requests are taken up meanwhile.
            self.scheduler.adapters.wait(_PATIENCE)
        return events

    def _broken(self) -> Iterator[TokenEvent]:
        """End the requests whose adapters could not be loaded."""
        broken, self.scheduler.broken = self.scheduler.broken, []
        for progress, error in broken:
            what = f"adapter '{progress.request.adapter}': {str(error) or type(error).__name__}"
            yield self._end(progress, Finish.ERROR, error=what)

    def _expired(self) -> Iterator[TokenEvent]:
        now = self._clock()
        for progress in list(self._requests.values()):
            deadline = progress.request.deadline
            if deadline is not None and now >= deadline:
                yield self._end(progress, Finish.DEADLINE)

    def _start(self, launch: Launch) -> _StartedLaunch:
        """Start a launch; the requests go on as if its tokens were read already."""
        session, requests = self._session, [progress for progress, _ in launch.parts]
        rows = [row_of(progress) for progress in requests]
        texts = [p.text[p.processed : p.processed + count] for p, count in launch.parts]
        fed = {n: _last_of(p) for n, p in enumerate(requests) if not texts[n]}
        starts = [p.processed for p in requests]
        draw = draw_for(
            session,
            [p.request.sampling for p in requests],
            [len(p.tokens) + p.unread for p in requests],
        )
        given = session.start(*packed([text or [0] for text in texts], starts), rows, draw, fed)
        parts: list[_LaunchPart] = []
        for place, (progress, count) in enumerate(launch.parts):
            self.scheduler.pool.append(rows[place], progress.cached(texts[place]))
            progress.processed += count
            chooses = not progress.remaining
            if chooses:
                progress.unread += 1
                progress.last = DeviceToken(given, place)
                progress.spent = self._is_last(progress, progress.processed, progress.unread)
            parts.append(_LaunchPart(progress, rows[place], progress.processed, count - 1, chooses))
        return _StartedLaunch(given, parts)

    def _is_last(self, progress: RequestProgress, processed: int, unread: int) -> bool:
        """True if a request ends with its next tokens, of a row of ``processed`` tokens."""
        made = len(progress.tokens) + unread
        return processed >= self._session.limit or made >= progress.request.max_new_tokens

    def _read(self, count: int) -> Iterator[TokenEvent]:
        """Read the first launches in flight, and choose the next token of finished texts."""
        for _ in range(min(count, len(self._flight))):
            started = self._flight.pop(0)
            result = started.step.read()
            for place, part in enumerate(started.parts):
                # A request that has ended meanwhile has no use for the token.
                if self._requests.get(part.progress.request.id) is not part.progress:
                    continue
                _note_prompt(part, result, place)
                if part.chooses:
                    yield self._chosen(part, result, place)

    def _chosen(self, part: _LaunchPart, result: RowResults, place: int) -> TokenEvent:
        """Append the token that follows a text, and end the request if it is the last."""
        progress, request = part.progress, part.progress.request
        progress.unread -= 1
        logits = result.logits_at(place, part.column)
        try:
            token = self._choice(progress, result, place, logits)
        except GraphgenError as error:
            return self._unchosen(progress, error)
        if (
            token not in request.eos_ids
            and progress.row == part.row
            and progress.processed > part.processed
        ):
            # The next launch has put it into the row.
            self.scheduler.pool.append(part.row, progress.cached([token]))
        return self._taken(progress, token, logits, part.processed)

    def _unchosen(self, progress: RequestProgress, error: GraphgenError) -> TokenEvent:
        """End a request whose next token cannot be chosen."""
        if isinstance(error, MaskError):
            return self._end(progress, Finish.REFUSED, error=error.what)
        return self._end(progress, Finish.ERROR, error=str(error))

    def _proposed(self, launch: Launch) -> list[ProposedRow]:
        """The rows of a launch that verifies proposals; empty for any other launch."""
        return [] if self._speculation is None else self._speculation.proposed(launch)

    def _launching(self, launch: Launch) -> AbstractContextManager[None]:
        return nullcontext() if self._speculation is None else self._speculation.launching(launch)

    def _verify(self, parts: Sequence[ProposedRow]) -> Iterator[TokenEvent]:
        """Verify proposals in one launch; the events of each row's next tokens."""
        assert self._speculation is not None
        rows = [row_of(part.progress) for part in parts]
        logits = self._speculation.verify(parts)
        lengths = self._session.lengths.copy()
        for row, part, found in zip(rows, parts, logits, strict=True):
            events = list(self._accepted(part, row, found))
            accepted = sum(event.accepted for event in events)
            size = len(part.proposal.tokens)
            key = part.progress.order
            self._speculation.speculator.note(key, size, len(events), accepted)
            lengths[row] = part.progress.processed
            yield from events
        self._session.take_back(lengths)

    def _accepted(self, part: ProposedRow, row: int, logits: Logits) -> Iterator[TokenEvent]:
        """The events of the tokens that a row accepts, and of the one after them."""
        progress, tokens, pool = part.progress, part.proposal.tokens, self.scheduler.pool
        proposed = len(tokens)
        choices, last = part.choices(logits), part.row.sequence[-1]
        for place in range(len(tokens) + 1):
            # It is in the cache, as the row goes on with it.
            pool.append(row, progress.cached([last]))
            progress.processed += 1
            try:
                last = next(choices)
            except GraphgenError as error:
                yield self._unchosen(progress, error)
                return
            event = self._taken(progress, last, logits[place], progress.processed)
            accepted = place < len(tokens) and last == tokens[place]
            yield replace(event, proposed=proposed, accepted=accepted)
            proposed = 0
            if event.finish is not None:
                return
            if not accepted:
                break
        pool.trim(row)

    def _taken(
        self, progress: RequestProgress, token: int, logits: Logits | None, processed: int
    ) -> TokenEvent:
        """Append a token to an answer, and end the request if it is the last.

        Args:
            progress: of the request.
            token: the token.
            logits: f32 [V] that it was chosen from.
            processed: tokens of the text that the row held for them.
        """
        request = progress.request
        # With the first token.
        prompt = (
            None if progress.tokens or request.prompt_logprobs is None else progress.prompt_rows
        )
        event = self._with_text(progress, token, logits, processed)
        return event if prompt is None else replace(event, prompt_logprobs=tuple(prompt))

    def _with_text(
        self, progress: RequestProgress, token: int, logits: Logits | None, processed: int
    ) -> TokenEvent:
        request, logprobs = progress.request, None
        if request.logprobs is not None and logits is not None:
            logprobs = logprobs_of(logits, token, request.logprobs)
        progress.tokens.append(token)
        if token in request.eos_ids:
            return self._end(progress, Finish.EOS, token, logprobs=logprobs)
        piece = "" if progress.written is None else progress.written.push(token)
        if progress.written is not None and progress.written.stopped:
            return self._end(progress, Finish.STOP, token, text=piece, logprobs=logprobs)
        if self._is_last(progress, processed, 0):
            return self._end(progress, Finish.LENGTH, token, text=piece, logprobs=logprobs)
        return TokenEvent(request.id, token, text=piece, logprobs=logprobs)

    def _choice(
        self, progress: RequestProgress, result: RowResults, place: int, logits: Logits | None
    ) -> int:
        """The next token of a request (GG0705 where none is left)."""
        request, tokens = progress.request, progress.tokens
        if self._session.chooses:
            return int(self._session.answer(result)[place])
        assert logits is not None
        return next_token(
            logits,
            progress.text,
            request.sampling,
            0,
            len(tokens),
            bias=request.bias_after(tokens),
            allowed=None if request.mask is None else request.mask(tokens),
        )

    def _end(
        self,
        progress: RequestProgress,
        why: Finish,
        token: int | None = None,
        *,
        error: str = "",
        text: str = "",
        logprobs: TokenLogprobs | None = None,
    ) -> TokenEvent:
        """Free the row of a request; its last event, with the rest of its text."""
        self.scheduler.leave(progress)
        del self._requests[progress.request.id]
        written = progress.written
        if written is not None:
            text += written.end()
            if written.stopped and why is Finish.LENGTH:
                why = Finish.STOP
        return TokenEvent(progress.request.id, token, why, error, text, logprobs)

    def _failed(self, error: BaseException) -> list[TokenEvent]:
        """End the requests that have rows, whose contents are unknown now."""
        what = str(error) or type(error).__name__
        ended = [
            self._end(progress, Finish.ERROR, error=what)
            for progress in list(self.scheduler.running)
        ]
        # Steps in flight are lost; waiting requests choose those tokens again.
        self._flight.clear()
        for progress in self.scheduler.waiting:
            progress.unread = 0
        self.scheduler.pool.clear()
        self._session.reset()
        if self._speculation is not None:
            self._speculation.restart()
        return ended


@dataclass(frozen=True, slots=True)
class _LaunchPart:
    """A row of a launch in flight.

    Attributes:
        progress: the request.
        row: its row.
        processed: tokens in the row after the launch.
        column: of the row's last token in the launch.
        chooses: the launch processes the last token of the text.
    """

    progress: RequestProgress
    row: int
    processed: int
    column: int
    chooses: bool


def _note_prompt(part: _LaunchPart, result: RowResults, place: int) -> None:
    """Keep the log probabilities of the prompt's token that follows those of a launch."""
    progress, done = part.progress, part.processed
    wanted, prompt = progress.request.prompt_logprobs, progress.request.prompt
    # Not those of a launch before the row was lost.
    if wanted is None or done >= len(prompt) or len(progress.prompt_rows) != done - 1:
        return
    logits = result.logits_at(place, part.column)
    assert logits is not None
    progress.prompt_rows.append(logprobs_of(logits, prompt[done], wanted))


@dataclass(frozen=True, slots=True)
class _StartedLaunch:
    """A launch in flight and its rows."""

    step: PendingStep
    parts: Sequence[_LaunchPart]


def options_of(session: Session) -> SchedulerOptions:
    """The limits that follow from the programs of a session."""
    table = session.table
    chunks = table.chunk_sizes()
    sizes = [*table.batches("prefill"), *table.batches("chunk")] or table.batches("decode")
    return SchedulerOptions(
        chunk=chunks[-1] if chunks else 0,
        prompts=max(sizes),
        groups=stage_count(session.module),
    )


def _last_of(progress: RequestProgress) -> DeviceToken:
    assert progress.last is not None
    return progress.last
