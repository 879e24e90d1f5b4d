"""Threads of each process that notice when another one ends, fails or is silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.processes import KeyValueStore

# Seconds between two signs of life.
_EVERY = 0.5
BEATS, FAILURES = "graphgen/beats", "graphgen/failures"


class ProcessWatch:
    """Gives signs of life, and looks for those of the other processes.

    One thread talks to the coordinator, which may never answer; the other one watches the first.

    Args:
        store: of all processes.
        count, index: number of processes, and this one.
        silence: seconds without a sign after which a process is lost.
        on_lost: called once with the error (GG0708), from a thread; it ends the process.
    """

    def __init__(
        self,
        store: KeyValueStore,
        count: int,
        index: int,
        silence: float,
        on_lost: Callable[[GraphgenError], None],
    ) -> None:
        self._store: Final = store
        self._count: Final = count
        self._index: Final = index
        self._silence: Final = silence
        self._on_lost: Final = on_lost
        self._ended: Final = Event()
        self._answered = time.monotonic()
        self._seen: dict[int, tuple[str, float]] = {}

    def start(self) -> None:
        """Start both threads; they end with the process."""
        for work in (self._talk, self._guard):
            Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """Look no more: the processes end, in any order."""
        self._ended.set()

    def _talk(self) -> None:
        number = 0
        while not self._ended.wait(_EVERY):
            number += 1
            try:
                self._store.set(f"{BEATS}/{self._index}", str(number))
                failures = self._store.folder(FAILURES)
                beats = self._store.folder(BEATS)
            except RuntimeError as error:
                self._lose(0, f"the coordinator does not answer: {str(error).splitlines()[0]}")
                return
            now = self._answered = time.monotonic()
            for other in range(self._count):
                # Strangers may write into the store, too: other names are none of a process.
                what = failures.get(str(other))
                if other != self._index and what is not None:
                    self._lose(other, what)
                    return
            self._look(beats, now)

    def _look(self, beats: dict[str, str], now: float) -> None:
        """Compare the signs of the other processes with the last ones."""
        for other in range(self._count):
            beat, (last, since) = beats.get(str(other), ""), self._seen.get(other, ("", now))
            self._seen[other] = (beat, since if beat == last else now)
            silent = now - self._seen[other][1]
            if other != self._index and silent > self._silence:
                self._lose(other, f"silent for {silent:.0f} s")

    def _guard(self) -> None:
        while not self._ended.wait(_EVERY):
            silent = time.monotonic() - self._answered
            if silent > self._silence:
                self._lose(0, f"its coordinator has not answered for {silent:.0f} s")

    def _lose(self, other: int, what: str) -> None:
        if self._ended.is_set():
            return
        self._ended.set()
        self._on_lost(lost_process(other, self._count, what))


def lost_process(other: int, count: int, what: str) -> GraphgenError:
    """The error (GG0708) about a process that does not go on."""
    return GraphgenError(
        "GG0708",
        f"process {other} of {count} is lost: {what}",
        help="see what it reported; no process goes on without the others: start all of them again",
    )
