"""Adapters that are numbers, a session whose tokens depend on them, and loads on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import numpy.typing as npt

from graphgen.runtime.session.pending_step import DeviceToken, PendingStep
from graphgen.runtime.session.step_call import Draw
from tests.runtime.serving.fake_session import FakeSession, next_token


def next_with(adapter: int) -> Callable[[Sequence[int]], int]:
    """The token after a text that was computed with one adapter, 0 for none."""
    return lambda tokens: next_token([*tokens, *[adapter] * len(tokens)])


class AdapterSession(FakeSession):
    """Rows whose tokens were each computed with the adapter that the row had then."""

    def __init__(
        self, rows: int, limit: int, chunk: int, prompts: int, *, slots: int, chooses: bool = False
    ) -> None:
        super().__init__(rows, limit, chunk, prompts, chooses=chooses)
        self.slots = slots
        self.written = [0] * slots
        self.of_rows = [-1] * rows
        self.used: list[list[int]] = [[] for _ in range(rows)]
        self.refuses_writes = False

    def write_prepared(self, slot: int, adapter: int) -> None:
        if self.refuses_writes:
            self.refuses_writes = False
            self.written[slot] = 255
            raise RuntimeError("the slot was not written")
        self.written[slot] = adapter

    def assign(self, row: int, slot: int) -> None:
        assert -1 <= slot < self.slots
        self.of_rows[row] = slot

    def reset(self) -> None:
        super().reset()
        self.used = [[] for _ in range(self.rows)]

    def copy_row(self, source: int, target: int) -> None:
        super().copy_row(source, target)
        self.used[target] = list(self.used[source])

    def start(
        self,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        rows: Sequence[int],
        draw: Draw | None = None,
        fed: Mapping[int, DeviceToken] | None = None,
    ) -> PendingStep:
        for place, row in enumerate(rows):
            real = positions[place][positions[place] >= 0]
            slot = self.of_rows[row]
            adapter = 0 if slot < 0 else self.written[slot]
            self.used[row][int(real[0]) :] = [adapter] * len(real)
        return super().start(tokens, positions, rows, draw, fed)

    def next_of(self, row: int) -> int:
        return next_token([*self.held[row], *self.used[row]])


class HeldLoads(Executor):
    """Runs nothing before it is asked to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        """End the oldest load."""
        future, load = self.waiting.pop(0)
        try:
            future.set_result(load())
        except Exception as error:
            future.set_exception(error)
