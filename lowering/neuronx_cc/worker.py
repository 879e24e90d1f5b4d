"""Runs compilers: each in a process group of its own, with a time-out, within a memory budget."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a process.

    Attributes:
        status: the exit status; 128 and the number of a signal that ended it, or, where the group
            was killed, the negative number.
        timed_out: it was ended because its time was over.
        seconds: wall time.
        peak_bytes: memory of its largest process at its worst moment, at least that of the process
            that started it.
    """

    status: int
    timed_out: bool
    seconds: float
    peak_bytes: int


class MemoryBudget:
    """Lets tasks run whose memory fits together; one alone runs whatever it takes.

    Args:
        total: bytes for all of them.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: list[int] = []
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, nbytes: int) -> Generator[None]:
        """Wait until ``nbytes`` are free, and hold them for a ``with`` block."""
        nbytes = min(nbytes, self.total)
        with self._changed:
            self._changed.wait_for(lambda: sum(self._held) + nbytes <= self.total)
            self._held.append(nbytes)
        try:
            yield
        finally:
            with self._changed:
                self._held.remove(nbytes)
                self._changed.notify_all()


class Processes:
    """The processes of this compilation, which end together when it is interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self.stopped = False

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        output: Path,
        seconds: float,
        environment: Mapping[str, str] | None = None,
    ) -> RunResult:
        """Run a command to its end, with its output in a file.

        Args:
            words: the command.
            folder: it runs in.
            output: file of its standard output and error.
            seconds: after which it and all that it started are killed; 0 for no limit.
            environment: of the process; by default that of this one.

        Raises:
            OSError: it cannot be started.
        """
        self.check()
        start = time.monotonic()
        reader, writer = os.pipe()
        try:
            process = _started(words, folder, output, reader, environment)
        finally:
            os.close(reader)
        timed_out = threading.Event()
        timer = threading.Timer(seconds or 1e9, lambda: (timed_out.set(), _kill(process.pid)))
        timer.daemon = True
        with self._watched(process.pid):
            if seconds:
                timer.start()
            # Not process.wait(): its result has no memory.
            _, ended, used = os.wait4(process.pid, 0)
            timer.cancel()
            # Processes left by a compiler must not go on.
            _kill(process.pid)
        os.close(writer)
        process.returncode = os.waitstatus_to_exitcode(ended)
        taken = time.monotonic() - start
        return RunResult(process.returncode, timed_out.is_set(), taken, used.ru_maxrss << 10)

    @contextmanager
    def _watched(self, group: int) -> Generator[None]:
        with self._lock:
            self._groups.add(group)
            if self.stopped:
                _kill(group)
        try:
            yield
        finally:
            with self._lock:
                self._groups.discard(group)

    def check(self) -> None:
        """Leave a thread that waits once the processes are stopped.

        Raises:
            InterruptedError: they are.
        """
        if self.stopped:
            raise InterruptedError("the compilation was stopped")

    def stop(self) -> None:
        """Kill all workers, and any worker started later."""
        with self._lock:
            self.stopped = True
            for group in self._groups:
                _kill(group)


def _started(
    words: Sequence[str],
    folder: Path,
    output: Path,
    pipe: int,
    environment: Mapping[str, str] | None,
) -> subprocess.Popen[bytes]:
    """Start a command that ends with this process: see :mod:`.supervisor`."""
    supervised = [sys.executable, "-S", "-E", _SUPERVISOR, str(pipe), *words]
    with output.open("wb") as file:
        return subprocess.Popen(
            supervised,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=(pipe,),
            start_new_session=True,
        )


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def available_memory() -> int:
    """Bytes of available memory; all of the machine's if the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
