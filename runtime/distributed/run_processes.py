"""Start the processes of a node and watch them: when one ends badly, all of them end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from graphgen.atomic_write import open_inside
from graphgen.errors import GraphgenError
from graphgen.runtime.distributed.launch_plan import LaunchPlan

# Seconds between looks, and those that processes have to say what they know before they are killed.
_LOOK, _GRACE = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The end of a node's processes.

    Attributes:
        status: exit status of the launch.
        error: about a process that a signal ended.
        reports: errors of processes by index, unless process 0 has printed one.
    """

    status: int
    error: GraphgenError | None
    reports: Mapping[int, str]


def run_processes(
    plan: LaunchPlan,
    words: Sequence[str],
    logs: Path,
    *,
    drains: bool = False,
    reads: bool = False,
) -> NodeEnd:
    """Run ``python -m graphgen WORDS`` in each process of this node until all have ended.

    Only process 0 writes to the terminal; the others write to ``rank-N.log`` in ``logs``.

    Args:
        plan: of the launch.
        words: of the command line.
        logs: folder of the logs; it is there.
        drains: process 0 finishes its work after SIGTERM, which is sent on to it, as SIGINT is.
        reads: process 0 has the standard input of the launch.

    Raises:
        GraphgenError: GG0704 when a log cannot be written.
    """
    first = plan.local.start
    with ExitStack() as stack:
        running: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for index in plan.local:
                log = None if index == 0 else stack.enter_context(_log(logs, index))
                given = None if reads and index == 0 else subprocess.DEVNULL
                running[index] = _start(plan, index, words, log, given, apart=drains)
            if drains and 0 in running:
                stack.enter_context(_signals_sent_on(running[0]))
            statuses = _ends(running, plan.silence)
        finally:
            _kill(running.values())
    bad = {index: status for index, status in statuses.items() if status}
    if not bad:
        return NodeEnd(0, None, {})
    killed = {index: -status for index, status in bad.items() if status < 0}
    spoke = 0 in bad and 0 not in killed
    paths = {index: logs / f"rank-{index}.log" for index in bad if index and not spoke}
    reports = {index: _report(path.read_text(errors="replace")) for index, path in paths.items()}
    return NodeEnd(max([1, *bad.values()]), _signal_error(killed, plan.world, first), reports)


def _report(text: str) -> str:
    """The error at the end of a log; nothing without one."""
    starts = [text.rfind(start) for start in ("error[", "Traceback (")]
    return text[max(starts) :] if max(starts) >= 0 else ""


def _log(logs: Path, index: int) -> IO[bytes]:
    path = logs / f"rank-{index}.log"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        return os.fdopen(open_inside(logs, path, flags), "wb")
    except OSError as error:
        raise GraphgenError("GG0704", f"cannot write {path}: {error.strerror}") from error


@contextmanager
def _signals_sent_on(process: subprocess.Popen[bytes]) -> Generator[None]:
    """Send the first signal to end on to a process, as SIGTERM; a second one works as ever."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in kept.items():
            signal.signal(number, handler)

    def send_on(*_: object) -> None:
        restore()
        process.terminate()

    for number in kept:
        signal.signal(number, send_on)
    try:
        yield
    finally:
        restore()


def _start(
    plan: LaunchPlan,
    index: int,
    words: Sequence[str],
    log: IO[bytes] | None,
    given: int | None,
    *,
    apart: bool,
) -> subprocess.Popen[bytes]:
    env = {**os.environ, **plan.variables(index)}
    out = None if log is None else subprocess.DEVNULL
    command = [sys.executable, "-m", "graphgen", *words]
    # A terminal sends its signals to the processes of its group.
    group = 0 if apart else None
    return subprocess.Popen(
        command, env=env, stdin=given, stdout=out, stderr=log, process_group=group
    )


def _ends(running: Mapping[int, subprocess.Popen[bytes]], silence: float) -> dict[int, int]:
    """The exit status of each process; after a bad one the others have little time.

    Those that are killed here are left out. The processes of other nodes end when one is stopped,
    but nothing else ends it: after ``silence`` seconds it counts as ended by the stop signal.
    """
    statuses: dict[int, int] = {}
    stopped: dict[int, float] = {}
    deadline = float("inf")
    while len(statuses) < len(running) and time.monotonic() < deadline:
        now = time.monotonic()
        for index, process in running.items():
            status = process.poll()
            if index in statuses:
                continue
            if status is None and _is_stopped(process.pid):
                if now - stopped.setdefault(index, now) > silence:
                    status = -signal.SIGSTOP
            else:
                stopped.pop(index, None)
            if status is not None:
                statuses[index] = status
            if status:
                deadline = min(deadline, now + _GRACE)
        time.sleep(_LOOK)
    return statuses


def _is_stopped(pid: int) -> bool:
    """True for a child that a signal has stopped and none has continued; known on Linux."""
    if sys.platform != "linux":
        return False
    look = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, pid, look) is not None
    except ChildProcessError:
        return False


def _kill(running: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill what still runs, also where it is stopped."""
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def _signal_error(killed: Mapping[int, int], world: int, first: int) -> GraphgenError | None:
    if not killed:
        return None
    # Where process 0 goes, jaxlib ends the others with SIGABRT.
    index = min(killed, key=lambda i: (killed[i] == signal.SIGABRT, i))
    name, end = signal.Signals(killed[index]).name, "ended"
    if killed[index] == signal.SIGSTOP:
        end = "stopped"
    lost = killed[index] == signal.SIGABRT and first > 0
    what = "; its connection to process 0 was lost" if lost else ""
    return GraphgenError(
        "GG0708",
        f"process {index} of {world} was {end} by {name}{what}",
        help="SIGKILL may mean that the machine has no memory left: start all processes again",
    )
