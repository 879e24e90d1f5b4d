"""The generation loop: prefill, then decode steps until every sequence ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.runtime.on_device_sampling import check_choice, draw_of
from graphgen.runtime.sampling import GREEDY, Sampling, choose_token
from graphgen.runtime.session import Draw, Session, StepOutput

# Called with (row, token) as soon as a token is chosen.
OnToken = Callable[[int, int], None]


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
) -> tuple[list[Completion], Timings]:
    """Answer ``prompts`` in one batch; answers do not depend on each other.

    Args:
        session: its rows are emptied first.
        prompts: token ids, at most one prompt per row.
        request: the generation settings.
        on_token: called with row and token as soon as a token is chosen.

    Raises:
        GraphgenError: GG0702 for an empty prompt, GG0701 for one longer than the largest bucket,
            GG0705 for more prompts than rows, or if sampling filters leave no token.
    """
    check_prompts(prompts, session.rows)
    choices = request.choices(len(prompts))
    check_choice(session, choices)
    padded: list[Sequence[int]] = [*prompts, *([()] * (session.rows - len(prompts)))]
    rows = [Row(prompt, [], how) for prompt, how in zip(prompts, choices, strict=True)]
    session.reset()
    with _Clock(session) as clock:
        given = session.prefill(padded, request.padding, _draw(session, rows))
        _take(session, rows, given, [True] * len(rows), request, on_token)
    first = clock.seconds
    steps = list(_decode(session, rows, request, on_token))
    return [Completion(row.tokens, row.finish) for row in rows], Timings(first, steps)


def check_prompts(prompts: Sequence[Sequence[int]], rows: int) -> None:
    """Refuse empty prompts and more prompts than rows (GG0702, GG0705)."""
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise GraphgenError(
                "GG0702", f"prompt {index + 1} is empty", help="a prompt needs at least one token"
            )
    if not prompts:
        raise GraphgenError("GG0702", "there is no prompt", help="give at least one --prompt")
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
        with _Clock(session) as clock:
            _step(session, rows, request, on_token)
        yield clock.seconds


def _step(
    session: Session, rows: list[Row], request: GenerationRequest, on_token: OnToken | None
) -> None:
    """Run one decode step for the rows that are not done."""
    idle = [False] * (session.rows - len(rows))
    active = [not row.finish for row in rows] + idle
    last = [row.tokens[-1] for row in rows] + [0] * len(idle)
    given = session.decode(last, active, _draw(session, rows))
    _take(session, rows, given, active, request, on_token)


def _draw(session: Session, rows: list[Row]) -> Draw | None:
    """The sampling inputs of each row's next token, for programs that sample."""
    return draw_of(session, [row.how for row in rows], [len(row.tokens) for row in rows])


class _Clock:
    """Seconds of a block, minus the compilation and warm-up inside."""

    def __init__(self, session: Session) -> None:
        self.programs = session.programs
        self.seconds = 0.0

    def __enter__(self) -> _Clock:
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
        _append(session, number, row, token, request)
        if on_token is not None:
            on_token(number, token)


def _append(
    session: Session, number: int, row: Row, token: int, request: GenerationRequest
) -> None:
    """Append a chosen token and decide whether the sequence ends with it."""
    row.tokens.append(token)
    if token in request.eos_ids:
        row.finish = "eos"
    elif len(row.tokens) >= request.max_new_tokens or session.lengths[number] >= session.limit:
        row.finish = "length"
