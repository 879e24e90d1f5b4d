"""An engine in a child process, in the Python environment that has its packages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError
from benchmarks.real_time_priority import at_real_time, threads_of

ROOT = Path(__file__).resolve().parents[2]
# Lines of an engine's own output that are shown when it fails.
LAST_LINES = 5


class EngineMissingError(Exception):
    """An engine's packages are not installed; the message says which."""


class EngineFailedError(Exception):
    """An engine ended or raised an error; the message has its last words."""


class EngineProcess:
    """A running engine. Between requests all its processes are stopped.

    Args:
        name: as users write it.
        module: the module of ``benchmarks.engines``, or another one with ``create()``.
        python: the interpreter of its environment.

    Attributes:
        version: as the engine gives it.
        pid: of the child, and of the session that all its processes are in.
        ended: whether its process has ended by itself.

    Raises:
        EngineMissingError: if its packages are not installed there.
        EngineFailedError: if it ends before it answers.
    """

    def __init__(self, name: str, module: str, python: str = sys.executable) -> None:
        self.name, self.python, self.ended = name, python, False
        self._folder = tempfile.TemporaryDirectory(prefix="graphgen-compare-")
        self._log = Path(self._folder.name) / "log"
        command = [python, "-m", "benchmarks.comparison.worker", module]
        try:
            self._child = self._started(command)
        except OSError:
            self._folder.cleanup()
            raise
        self.pid = self._child.pid
        try:
            self.version = str(self._answer())
        except BaseException:
            self.close()
            raise
        self._stop()

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        """As :meth:`Engine.open`."""
        self._ask("open", case=asdict(case), files=asdict(files), threads=threads)

    def turn(self, prompts: Sequence[Sequence[int]], steps: int, *, alone: bool = False) -> Turn:
        """As :meth:`Engine.turn`; ``alone`` at a real-time priority, which needs root."""
        with at_real_time(threads_of(self.pid) if alone else ()):
            return Turn(**self._ask("turn", prompts=prompts, steps=steps))

    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        """As :meth:`Engine.nats`."""
        return float(self._ask("nats", windows=windows))

    def close(self) -> None:
        """End its processes."""
        self._signal(signal.SIGKILL)
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._folder.cleanup()

    def _ask(self, what: str, **values: object) -> Any:
        assert self._child.stdin is not None
        with self._running():
            # One that has ended is reported below, with its last words.
            with suppress(BrokenPipeError):
                self._child.stdin.write(json.dumps({"do": what, **values}) + "\n")
                self._child.stdin.flush()
            return self._answer()

    @contextmanager
    def _running(self) -> Generator[None]:
        """Let its processes run: what waits must not spin on the cores that another one uses."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._stop()

    def _started(self, command: Sequence[str]) -> subprocess.Popen[str]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                # A session of its own, which the engine's own children belong to.
                start_new_session=True,
            )

    def _stop(self) -> None:
        """Return when the child is stopped, or has ended."""
        self._signal(signal.SIGSTOP)
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self.ended = True
            raise EngineFailedError(f"it ended with {self._child.wait()}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "missing" in answer:
            raise EngineMissingError(answer["missing"])
        if "unsupported" in answer:
            raise UnsupportedError(answer["unsupported"])
        if "failed" in answer:
            raise EngineFailedError(answer["failed"])
        return answer["result"]

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return " | ".join([line for line in lines if line.strip()][-LAST_LINES:])
