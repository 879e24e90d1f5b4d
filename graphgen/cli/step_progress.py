"""Progress of long checks on stderr: a moving line on a terminal, else a line for each step."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from graphgen.errors import printable

# Seconds without output: shorter checks print nothing.
_QUIET = 2.0


class StepProgress:
    """Prints the current step of a check that takes longer than two seconds, while it runs.

    On a terminal one line is kept up to date, with the seconds so far.
    """

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._start = time.monotonic()
        self._step = ""
        self._shown = ""
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> StepProgress:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        if self._terminal and self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def step(self, text: str) -> None:
        """Begin a step."""
        with self._lock:
            self._step = text
        if self.elapsed >= _QUIET:
            self._show()

    @property
    def elapsed(self) -> float:
        """Seconds since the check began."""
        return time.monotonic() - self._start

    def _watch(self) -> None:
        wait = _QUIET
        while not self._done.wait(wait):
            self._show()
            wait = 1.0

    def _show(self) -> None:
        with self._lock:
            if not self._step:
                return
            if self._terminal:
                line = f"\r\x1b[K  {printable(self._step)}, {self.elapsed:.0f} s"
                print(line, end="", file=sys.stderr, flush=True)
            elif self._step != self._shown:
                line = f"note: {self._step} (after {self.elapsed:.0f} s)"
                print(printable(line), file=sys.stderr, flush=True)
            self._shown = self._step
