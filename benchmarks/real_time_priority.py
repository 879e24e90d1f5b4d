"""Let other work on the machine wait while something is timed."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def threads_of(session: int | None = None) -> Iterator[int]:
    """The threads of this process, or of all processes in a session of the system."""
    for process in Path("/proc").iterdir() if session is not None else [Path("/proc/self")]:
        # A process can end meanwhile.
        with suppress(ProcessLookupError, FileNotFoundError):
            if session is None or (process.name.isdigit() and _is_in(process, session)):
                yield from [int(thread.name) for thread in (process / "task").iterdir()]


def _is_in(process: Path, session: int) -> bool:
    return os.getsid(int(process.name)) == session


@contextmanager
def at_real_time(threads: Iterable[int]) -> Generator[None]:
    """Run threads at a real-time priority, which needs root; new threads of theirs inherit it."""
    changed = list(threads)
    _schedule(changed, os.SCHED_RR, 1)
    try:
        yield
    finally:
        _schedule(changed, os.SCHED_OTHER, 0)


def _schedule(threads: Iterable[int], policy: int, priority: int) -> None:
    for thread in threads:
        with suppress(ProcessLookupError):
            os.sched_setscheduler(thread, policy, os.sched_param(priority))
