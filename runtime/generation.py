"""The generation loop: prefill, then decode steps until every sequence ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STOPS
from graphgen.runtime.sampling import GREEDY, Sampling, choose_token
from graphgen.runtime.sampling.on_device_sampling import check_choice, draw_of, draws_of
from graphgen.runtime.session.async_conditions import check_async
from graphgen.runtime.session.pending_step import DeviceToken, PendingStep
from graphgen.runtime.session.session import (
    Draw,
    Session,
    StepOutput,
    check_token_ids,
    reserve_blocks,
)
from graphgen.runtime.session.step_call import Ints, StepLimits, packed

# Called with (row, token) as soon as a token is chosen.
OnToken = Callable[[int, int], None]
# Decodes rows that have their first token until every one is done; yields the seconds of each step.
Decode = Callable[[Session, "list[Row]", "GenerationRequest", "OnToken | None"], Iterator[float]]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Generation settings.

    Attributes:
        max_new_tokens: largest number of new tokens per prompt.
        eos_ids: tokens that end a sequence; the ending token is part of the output.
        padding: the padded side of shorter prompts, ``left`` or ``right``; tokens do not depend on
            it.
        sampling: one setting for all sequences, or one per sequence.
    """

    max_new_tokens: int = 128
    eos_ids: Collection[int] = ()
    padding: str = "right"
    sampling: Sampling | Sequence[Sampling] = GREEDY

    def choices(self, sequences: int) -> list[Sampling]:
        """The sampling settings of each sequence.

        Raises:
            GraphgenError: GG0705 if the numbers of settings and sequences differ.
        """
        if isinstance(self.sampling, Sampling):
            return [self.sampling] * sequences
        if len(self.sampling) != sequences:
            raise GraphgenError(
                "GG0705", f"{len(self.sampling)} settings of sampling for {sequences} sequences"
            )
        return list(self.sampling)


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one prompt.

    Attributes:
        tokens: the new tokens.
        finish_reason: ``eos``, or ``length`` at ``max_new_tokens`` or a full cache.
    """

    tokens: list[int]
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of the two phases, without compilation and warm-up.

    Attributes:
        first_token: from the call to the first tokens.
        steps: one for each decode step.
    """

    first_token: float
    steps: list[float]

    @property
    def per_step(self) -> float:
        """Mean seconds of a decode step, 0 without steps."""
        return sum(self.steps) / len(self.steps) if self.steps else 0.0


@dataclass(slots=True)
class Row:
    """One sequence being generated."""

    prompt: Sequence[int]
    tokens: list[int]
    how: Sampling
    finish: str = ""


def generate(
    session: Session,
    prompts: Sequence[Sequence[int]],
    request: GenerationRequest,
    on_token: OnToken | None = None,
    held: Sequence[int] = (),
    *,
    async_mode: bool = False,
    decode: Decode | None = None,
) -> tuple[list[Completion], Timings]:
    """Answer ``prompts`` in one batch; answers do not depend on each other.

    Where the session has programs of several steps, a launch makes several; the tokens are the
    same, and ``on_token`` is called for all of them after it. Asynchronous steps go one by one, as
    do those of a request with more than eight tokens that end a sequence.

    Args:
        session: its rows are emptied first, but for those that ``held`` names.
        prompts: token ids, at most one prompt per row.
        request: the generation settings.
        on_token: called with row and token as soon as a token is chosen.
        held: of each prompt the number of tokens at its front that its row holds already, fewer
            than it has: they are not processed again. Empty for none.
        async_mode: start each decode step before the tokens of the last one are read; the tokens
            are the same. A step that a row did not need, as its last token ended it, is dropped.
        decode: makes the decode steps, as :meth:`Speculator.decode` does; ``None`` for one after
            the other.

    Raises:
        GraphgenError: GG0702 for an empty prompt, GG0706 for one with a token outside the
            vocabulary, GG0701 for one longer than the largest bucket and for sequences that the
            blocks of a paged cache do not hold, GG0705 for more prompts than
            rows, if sampling filters leave no token, or for ``async_mode`` with programs that
            cannot do it.
    """
    check_prompts(prompts, session.rows)
    for number, prompt in enumerate(prompts, 1):
        check_token_ids(prompt, session.token_ids, f"prompt {number}")
    choices = request.choices(len(prompts))
    check_choice(session, choices)
    if async_mode:
        check_async(session)
    rows = [Row(prompt, [], how) for prompt, how in zip(prompts, choices, strict=True)]
    if not any(held):
        session.reset()
    reserve_blocks(session, {n: _most(session, row, request) for n, row in enumerate(rows)})
    with Clock(session) as clock:
        given = _prefill(session, rows, request, held)
        _take(session, rows, given, [True] * len(rows), request, on_token)
    first = clock.seconds
    if decode is not None:
        run = decode
    elif async_mode:
        run = _decode_in_flight
    else:
        run = _decode_several if _takes_several(session, request) else _decode
    steps = list(run(session, rows, request, on_token))
    return [Completion(row.tokens, row.finish) for row in rows], Timings(first, steps)


def _most(session: Session, row: Row, request: GenerationRequest) -> int:
    """Largest number of tokens that a row of the cache will hold."""
    # The last token of an answer is not processed.
    return min(len(row.prompt) + request.max_new_tokens - 1, session.limit)


def _prefill(
    session: Session, rows: list[Row], request: GenerationRequest, held: Sequence[int]
) -> StepOutput:
    """The output after each prompt, whose rows hold the first ``held`` tokens."""
    draw, count = _draw(session, rows), len(rows)
    if not any(held):
        prompts: list[Sequence[int]] = [row.prompt for row in rows]
        return session.prefill([*prompts, *([()] * (session.rows - count))], request.padding, draw)
    rest = [row.prompt[start:] for row, start in zip(rows, held, strict=True)]
    mine = None if draw is None else draw.of(np.arange(count))
    made = session.step(*packed(rest, held), draw=mine)
    return session.answer(made)


def check_prompts(prompts: Sequence[Sequence[int]], rows: int) -> None:
    """Refuse empty prompts and more prompts than rows (GG0702, GG0705)."""
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise GraphgenError(
                "GG0702", f"prompt {index + 1} is empty", help="a prompt needs at least one token"
            )
    if not prompts:
        raise GraphgenError("GG0702", "there is no prompt", help="give --prompt, or --chat alone")
    if len(prompts) > rows:
        raise GraphgenError(
            "GG0705",
            f"{len(prompts)} prompts, but the programs were compiled for {rows} "
            f"row{'s' if rows > 1 else ''}",
            help="give fewer prompts, or make another artifact",
        )


def _decode(
    session: Session, rows: list[Row], request: GenerationRequest, on_token: OnToken | None
) -> Iterator[float]:
    """Run decode steps until every row is done; yields the seconds of each."""
    while any(not row.finish for row in rows):
        with Clock(session) as clock:
            decode_step(session, rows, request, on_token)
        yield clock.seconds


def decode_step(
    session: Session, rows: list[Row], request: GenerationRequest, on_token: OnToken | None
) -> None:
    """Run one decode step for the rows that are not done, whose tokens are chosen as usual."""
    idle = [False] * (session.rows - len(rows))
    active = [not row.finish for row in rows] + idle
    last = [row.tokens[-1] for row in rows] + [0] * len(idle)
    given = session.decode(last, active, _draw(session, rows))
    _take(session, rows, given, active, request, on_token)


def _takes_several(session: Session, request: GenerationRequest) -> bool:
    """True if launches make several steps, of which the host needs no token in between."""
    return session.steps > 1 and len(request.eos_ids) <= STOPS


def _decode_several(
    session: Session, rows: list[Row], request: GenerationRequest, on_token: OnToken | None
) -> Iterator[float]:
    """Run decode steps, several a launch; yields the seconds of each."""
    while any(not row.finish for row in rows):
        left = [tokens_left(session, row, request) for row in rows]
        with Clock(session) as clock:
            if max(left) == 1:
                taken = 1
                decode_step(session, rows, request, on_token)
            else:
                taken = int((launch_steps(session, rows, request, on_token) >= 0).sum(1).max())
        for _ in range(taken):
            yield clock.seconds / taken


def launch_steps(
    session: Session, rows: list[Row], request: GenerationRequest, on_token: OnToken | None
) -> Ints:
    """Run one launch of several steps for the rows that are not done.

    Returns:
        s32 [R,N]: the tokens of each row, -1 where it took none.
    """
    counts, last = np.zeros(session.rows, np.int32), [0] * session.rows
    for number, row in enumerate(rows):
        counts[number] = min(tokens_left(session, row, request), session.steps)
        last[number] = row.tokens[-1]
    stops = np.full((session.rows, STOPS), -1, np.int32)
    stops[:, : len(request.eos_ids)] = list(request.eos_ids)
    made = [len(row.tokens) for row in rows]
    draw = draws_of(session, [row.how for row in rows], made, session.steps)
    chosen = session.decode_steps(last, StepLimits(counts, stops), draw)
    for column in chosen[: len(rows)].T:
        _take(session, rows, column, (column >= 0).tolist(), request, on_token)
    return chosen


def tokens_left(session: Session, row: Row, request: GenerationRequest) -> int:
    """The most tokens that a sequence still takes."""
    made = len(row.tokens)
    room = session.limit + 1 - len(row.prompt) - made
    return 0 if row.finish else min(request.max_new_tokens - made, room)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A decode step that was started, and its rows in order."""

    step: PendingStep
    rows: list[int]


def _decode_in_flight(
    session: Session, rows: list[Row], request: GenerationRequest, on_token: OnToken | None
) -> Iterator[float]:
    """Run decode steps, each started before the one before is read; yields the seconds of each."""
    flight = _begin(session, rows, request, None)
    # A step that no row needs any more stays unread.
    while flight is not None and any(not row.finish for row in rows):
        with Clock(session) as clock:
            later = _begin(session, rows, request, flight)
            given = session.answer(flight.step.read())
            for place, number in enumerate(flight.rows):
                row = rows[number]
                # A row that ended with the token before has no use for this one.
                if not row.finish:
                    token = int(given[place])
                    append_token(session, row, token, request)
                    if on_token is not None:
                        on_token(number, token)
            flight = later
        yield clock.seconds


def _begin(
    session: Session, rows: list[Row], request: GenerationRequest, flight: _Flight | None
) -> _Flight | None:
    """Start the decode step after ``flight``; ``None`` where no row needs one."""
    unread = [0] * len(rows)
    for number in flight.rows if flight is not None else ():
        unread[number] = 1
    active = [
        number
        for number, row in enumerate(rows)
        if not row.finish and not (unread[number] and _is_full(session, row, request, 1))
    ]
    if not active:
        return None
    tokens = [[0 if unread[number] else rows[number].tokens[-1]] for number in active]
    fed: dict[int, DeviceToken] = {}
    if flight is not None:
        places = {number: place for place, number in enumerate(flight.rows)}
        fed = {n: DeviceToken(flight.step, places[number]) for n, number in enumerate(active)}
    made = [len(row.tokens) + more for row, more in zip(rows, unread, strict=True)]
    draw = draw_of(session, [row.how for row in rows], made)
    starts = [len(rows[n].prompt) + made[n] - 1 for n in active]
    mine = None if draw is None else draw.of(np.array(active))
    return _Flight(session.start(*packed(tokens, starts), active, mine, fed), active)


def _draw(session: Session, rows: list[Row]) -> Draw | None:
    """The sampling inputs of each row's next token, for programs that sample."""
    return draw_of(session, [row.how for row in rows], [len(row.tokens) for row in rows])


class Clock:
    """Seconds of a block, minus the compilation and warm-up inside."""

    def __init__(self, session: Session) -> None:
        self.programs = session.programs
        self.seconds = 0.0

    def __enter__(self) -> Clock:
        self._start = time.perf_counter() - self.programs.seconds
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.programs.seconds - self._start


def _take(
    session: Session,
    rows: list[Row],
    given: StepOutput,
    active: Sequence[bool],
    request: GenerationRequest,
    on_token: OnToken | None,
) -> None:
    """Choose the next token of each active row, in order."""
    for number, row in enumerate(rows):
        if not active[number]:
            continue
        if session.chooses:
            token = int(given[number])
        elif row.how == GREEDY:
            token = int(given[number].argmax())
        else:
            sequence = [*row.prompt, *row.tokens]
            token = choose_token(given[number], sequence, row.how, number, len(row.tokens))
        append_token(session, row, token, request)
        if on_token is not None:
            on_token(number, token)


def append_tokens(
    session: Session,
    rows: list[Row],
    number: int,
    tokens: Sequence[int],
    request: GenerationRequest,
    on_token: OnToken | None,
) -> int:
    """Append tokens to a row up to the one that ends it.

    Returns:
        The tokens that the row of the cache holds then: all but the last one.
    """
    row = rows[number]
    for token in tokens:
        append_token(session, row, token, request)
        if on_token is not None:
            on_token(number, token)
        if row.finish:
            break
    return len(row.prompt) + len(row.tokens) - 1


def append_token(session: Session, row: Row, token: int, request: GenerationRequest) -> None:
    """Append a chosen token and decide whether the sequence ends with it."""
    row.tokens.append(token)
    if token in request.eos_ids:
        row.finish = "eos"
    elif _is_full(session, row, request, 0):
        row.finish = "length"


def _is_full(session: Session, row: Row, request: GenerationRequest, unread: int) -> bool:
    """True if a sequence takes no more tokens after ``unread`` more than it has."""
    made = len(row.tokens) + unread
    return made >= request.max_new_tokens or len(row.prompt) + made > session.limit
