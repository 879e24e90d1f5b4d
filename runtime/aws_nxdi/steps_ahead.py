"""Decode steps of ``generate`` that start before the tokens of the step before are read."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.generation_model import RandomNumbers
from graphgen.runtime.aws_nxdi.row_sampling import row_draw
from graphgen.runtime.session.async_conditions import check_async
from graphgen.runtime.session.pending_step import DeviceToken, PendingStep
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

    def _start(self, tokens: Ints, positions: Ints, after: PendingStep | None) -> PendingStep:
        session, rows = self.model.running().session, len(tokens)
        config = self.model.neuron_config
        reserve_blocks(session, {row: int(at) + 1 for row, at in enumerate(positions)})
        draw = row_draw(session, rows, self.sampling_params, config, self.model.random)
        fed = {} if after is None else {row: DeviceToken(after, row) for row in range(rows)}
        return session.start(tokens[:, None], positions[:, None], np.arange(rows), draw, fed)


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
    try:
        check_async(session)
    except GraphgenError as error:
        if error.code != "GG0705":
            raise
        yield None
        return
    ahead.starts_ahead = True
    try:
        yield StepsAhead(ahead, sampling_params, session.limit)
    finally:
        ahead.starts_ahead = False
