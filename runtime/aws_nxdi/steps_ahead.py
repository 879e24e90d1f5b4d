"""``async_mode``: decode steps that start before the tokens of the step before are read."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.forward_inputs import RowInput
from graphgen.runtime.aws_nxdi.generation_model import RandomNumbers
from graphgen.runtime.aws_nxdi.row_sampling import row_draw
from graphgen.runtime.aws_nxdi.user_arrays import as_numpy
from graphgen.runtime.session.async_conditions import check_async
from graphgen.runtime.session.pending_step import DeviceToken, PendingStep
from graphgen.runtime.session.row_results import RowResults
from graphgen.runtime.session.session import Session, reserve_blocks
from graphgen.runtime.session.step_call import Ints


class _Running(Protocol):
    """The programs of an application that is loaded."""

    @property
    def session(self) -> Session:
        """Programs, weights and cache."""
        ...


class AheadModel(Protocol):
    """The part of an application that starts steps.

    Attributes:
        neuron_config: has ``async_mode``.
        random: the random numbers of programs that draw.
        starts_ahead: true while ``generate`` starts steps ahead.
    """

    neuron_config: NeuronConfig
    random: RandomNumbers
    starts_ahead: bool

    def running(self) -> _Running:
        """The loaded programs (GG0908), without a step that no call has read."""
        ...

    def forms(self) -> _Running:
        """The loaded programs (GG0908)."""
        ...


@dataclass(slots=True)
class StepsAhead:
    """Steps of a batch, one of which may be started and not read.

    Random numbers are drawn in the order of steps, so that tokens are those of steps one by one; a
    step that no row needs has drawn some, too.

    Attributes:
        model: the application.
        sampling_params: f32 [B,3], for programs that choose tokens.
        most: the largest number of tokens of a sequence that a step may begin with, plus one.
        next: the step after the one that was read, if it is started.
    """

    model: AheadModel
    sampling_params: object
    most: int
    next: PendingStep | None = None

    def tokens(self, tokens: Ints, positions: Ints, more: int) -> Ints:
        """The tokens s32 [B] that follow, with the next step started.

        Args:
            tokens: s32 [B], the inputs of this step.
            positions: s32 [B], theirs.
            more: steps that may be needed after this one.
        """
        step = self.next or self._start(tokens, positions, None)
        self.next = None
        if more > 0 and int(positions.max()) + 1 < self.most:
            try:
                self.next = self._start(np.zeros_like(tokens), positions + 1, step)
            except GraphgenError as error:
                # Rows may all end now; a step that is needed asks for its blocks again.
                if error.code != "GG0701":
                    raise
        found = step.read().tokens
        assert found is not None
        return found

    def end(self, lengths: Ints) -> None:
        """Forget a step that no row needs; rows hold ``lengths`` tokens, s32 [B]."""
        self.next = None
        session = self.model.running().session
        kept = session.lengths.copy()
        kept[: len(lengths)] = lengths
        session.take_back(kept)

    def abandon(self) -> None:
        """Take a started step back, after an exception before :meth:`end`."""
        if self.next is not None:
            session = self.model.running().session
            kept = session.lengths.copy()
            kept[: len(self.next.home)] -= 1
            self.next = None
            session.take_back(kept)

    def _start(self, tokens: Ints, positions: Ints, after: PendingStep | None) -> PendingStep:
        rows = np.arange(len(tokens), dtype=np.int32)
        return start_step(self.model, rows, tokens, positions, self.sampling_params, after)


def start_step(
    model: AheadModel,
    rows: Ints,
    tokens: Ints,
    positions: Ints,
    sampling_params: object,
    after: PendingStep | None,
) -> PendingStep:
    """Start one more token of some rows, with their blocks and random numbers.

    Args:
        model: the application.
        rows: s32 [B], rows of the cache.
        tokens: s32 [B], the inputs; not read where ``after`` is given.
        positions: s32 [B], theirs.
        sampling_params: f32 [B,3], for programs that draw.
        after: the step that chooses the inputs, of the same rows.

    Raises:
        GraphgenError: GG0701 where there are too few blocks.
    """
    session = model.forms().session
    needs = {int(row): int(at) + 1 for row, at in zip(rows, positions, strict=True)}
    reserve_blocks(session, needs)
    draw = row_draw(session, len(rows), sampling_params, model.neuron_config, model.random)
    fed = {} if after is None else {place: DeviceToken(after, place) for place in range(len(rows))}
    return session.start(tokens[:, None], positions[:, None], rows, draw, fed)


@contextmanager
def steps_ahead(model: object, sampling_params: object) -> Generator[StepsAhead | None]:
    """Steps of a call of ``generate`` for a model with ``async_mode``; ``None`` for others.

    Programs whose tokens cannot go from step to step on the devices, such as stages of a pipeline,
    run one step after the other: the application notes it.
    """
    config = getattr(model, "neuron_config", None)
    if not isinstance(config, NeuronConfig) or not config.value("async_mode"):
        yield None
        return
    ahead = cast(AheadModel, model)
    session = ahead.running().session
    if not hands_over(session):
        yield None
        return
    ahead.starts_ahead = True
    steps = StepsAhead(ahead, sampling_params, session.limit)
    try:
        yield steps
    finally:
        ahead.starts_ahead = False
        steps.abandon()


@dataclass(frozen=True, slots=True)
class StartedStep:
    """The step that follows a call of ``forward``, started before the next call.

    Attributes:
        step: not read yet.
        rows: the row of the cache of each sequence, in the order of the call.
        before: s32 [R], tokens in each row of the cache before the step.
        after: the step whose tokens are its inputs; ``None`` where ``tokens`` are.
        tokens: s32 [B], its inputs.
        sampling: f32 [B,3], ``sampling_params`` of the call before; ``None`` for none.
        random: of the application when it was started.
        changes: of the session after the start: another number says that rows have changed.
    """

    step: PendingStep
    rows: tuple[int, ...]
    before: Ints
    after: PendingStep | None
    tokens: Ints | None
    sampling: npt.NDArray[np.float32] | None
    random: RandomNumbers
    changes: int

    def answers(self, rows: Sequence[RowInput], sampling: object, session: Session) -> bool:
        """True if a call with these rows and sampling settings is this step."""
        if session.watched or session.changes != self.changes:
            return False
        if tuple(row.row for row in rows) != self.rows:
            return False
        chosen = self.after.read().tokens if self.after is not None else self.tokens
        assert chosen is not None
        given = _sampling(sampling)
        same = given is self.sampling or (
            given is not None and self.sampling is not None and np.array_equal(given, self.sampling)
        )
        return same and all(
            row.tokens == (int(token),) and row.start == int(self.before[row.row])
            for row, token in zip(rows, chosen, strict=True)
        )


class ForwardAhead:
    """The step after a call of ``forward``, where ``async_mode`` starts it.

    A call in which each row is one more token starts the step that follows: with the tokens that
    the programs choose, handed over on the devices where the call itself was started so. A call
    that is another one takes the step back; its random numbers stay drawn.

    Args:
        model: the application.
    """

    def __init__(self, model: AheadModel) -> None:
        self._model: Final = model
        self._started: StartedStep | None = None

    def lengths(self, session: Session) -> Ints:
        """Tokens in each row of the cache, s32 [R], without those of a started step."""
        made, started = session.lengths.copy(), self._started
        if started is not None:
            for row in started.rows:
                # A row that something else has moved on since then is as it is.
                made[row] -= int(made[row] == started.before[row] + 1)
        return made

    def forget(self, session: Session) -> None:
        """Take a started step back."""
        if self._started is not None:
            kept, self._started = self.lengths(session), None
            session.take_back(kept)

    def results(
        self, rows: Sequence[RowInput], sampling: object, session: Session
    ) -> RowResults | None:
        """The results of a call that a started step answers; ``None`` for another call.

        The step after it is started before its results are read.
        """
        started = self._started
        fits = started is not None and started.random is self._model.random
        if started is None or not fits or not started.answers(rows, sampling, session):
            self.forget(session)
            return None
        self._started = None
        try:
            self._start(rows, sampling, session, started.step, None)
            return started.step.read()
        except BaseException:
            self._started = None
            session.take_back(started.before)
            raise

    def after(
        self, rows: Sequence[RowInput], sampling: object, session: Session, result: RowResults
    ) -> None:
        """Start the step after a call that was run at once."""
        if all(row.start and len(row.tokens) == 1 for row in rows):
            self._start(rows, sampling, session, None, result.tokens)

    def _start(
        self,
        rows: Sequence[RowInput],
        sampling: object,
        session: Session,
        after: PendingStep | None,
        tokens: Ints | None,
    ) -> None:
        """Start a step with the tokens that ``after`` chooses, or with ``tokens`` s32 [B]."""
        positions = np.array([row.start + 1 for row in rows], np.int32)
        if session.watched or not hands_over(session) or int(positions.max()) >= session.limit:
            return
        if len(rows) > session.table.batches("decode")[-1]:
            return
        before, places = session.lengths.copy(), np.array([row.row for row in rows], np.int32)
        given = np.zeros(len(rows), np.int32) if tokens is None else tokens.astype(np.int32)
        try:
            step = start_step(self._model, places, given, positions, sampling, after)
        except GraphgenError as error:
            # A call that needs the blocks asks for them, and says so.
            if error.code != "GG0701":
                raise
            return
        self._started = StartedStep(
            step,
            (*places.tolist(),),
            before,
            after,
            tokens,
            _sampling(sampling),
            self._model.random,
            session.changes,
        )


def _sampling(given: object) -> npt.NDArray[np.float32] | None:
    """A copy of ``sampling_params``: the caller may write into it between calls."""
    return None if given is None else np.array(as_numpy(given), np.float32)


def hands_over(session: Session) -> bool:
    """True if the programs hand the tokens of a step to the next one on the devices."""
    try:
        check_async(session)
    except GraphgenError as error:
        # GG1005: no program for it is compiled for the device.
        if error.code not in ("GG0705", "GG1005"):
            raise
        return False
    return True
