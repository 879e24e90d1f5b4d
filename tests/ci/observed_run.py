"""Run pytest, directly or through make, and say what its tests did, even if it dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.ci.recorder import FOLDER, PLAN, RECORD, Plan

# A test that takes longer than this ends its process, with the stacks of its threads on stderr.
TEST_LIMIT_S = 600
# Given to a run that is stopped, to write its summary.
GRACE_S = 60
DIED = "the process ended while this test ran"


@dataclass(slots=True)
class ObservedRun:
    """What is known of a run.

    Attributes:
        collected: ids of the tests that were to run, in order.
        outcomes: ``passed``, ``failed`` or ``skipped``, of each test that has ended.
        failures: what was printed for each test, or file that could not be imported, that failed.
        seconds: taken by each test.
        running: tests that have begun and not ended.
        slow: number of tests of `make slow` in each file, whether or not they were to run.
        exit_status: pytest's; ``None`` if it has died before its end, or has not begun.
        stopped: whether it was stopped since its time was over.
        output: of a run that was started with ``quiet``.
    """

    collected: list[str] = field(default_factory=list[str])
    outcomes: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    running: set[str] = field(default_factory=set[str])
    slow: dict[str, int] = field(default_factory=dict[str, int])
    exit_status: int | None = None
    stopped: bool = False
    output: str = ""

    @property
    def not_run(self) -> list[str]:
        """Tests that were to run and have not ended."""
        return [test for test in self.collected if test not in self.outcomes]


def observed_run(
    command: Sequence[str],
    root: Path,
    limit_s: float,
    plan: Plan | None = None,
    *,
    quiet: bool = False,
    test_limit_s: float = TEST_LIMIT_S,
) -> ObservedRun:
    """Run a command that runs pytest once, with the environment of this process.

    Args:
        command: that of pytest, or of make.
        root: the working directory.
        limit_s: seconds after which the run is stopped.
        plan: what is run of what the command collects; all by default.
        quiet: keep the output instead of printing it.
        test_limit_s: seconds after which the process of a test is ended.
    """
    with tempfile.TemporaryDirectory(prefix="graphgen-ci-") as name:
        folder = Path(name)
        (folder / PLAN).write_text(json.dumps(asdict(plan or Plan())), encoding="utf-8")
        environment = {
            **os.environ,
            FOLDER: name,
            "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} {_options(test_limit_s)}",
        }
        with (folder / "output").open("w+b") as output:
            # A session of its own: what tests leave running is ended with it.
            process = subprocess.Popen(
                command,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output if quiet else None,
                stderr=subprocess.STDOUT if quiet else None,
                start_new_session=True,
            )
            stopped = _wait(process, folder / RECORD, limit_s)
        run = _read(folder / RECORD)
        run.stopped = stopped
        if run.exit_status is None and not stopped:
            run.failures |= {test: run.failures.get(test, DIED) for test in run.running}
        run.output = (folder / "output").read_text(encoding="utf-8", errors="replace")
    return run


def _options(test_limit_s: float) -> str:
    limits = f"-o faulthandler_timeout={test_limit_s} -o faulthandler_exit_on_timeout=true"
    # A file that cannot be imported keeps no other from running; nor do several crashes.
    return f"-p {Plan.__module__} --continue-on-collection-errors --max-worker-restart=20 {limits}"


def _wait(process: subprocess.Popen[bytes], record: Path, limit_s: float) -> bool:
    """Wait for the end, and bring it about after the limit; returns whether that was needed."""
    stopped = False
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        stopped = True
        # Make would not hand the signal on; workers end with the process that started them.
        pids = [pid for event in _events(record) if isinstance(pid := event.get("pid"), int)]
        os.kill(pids[0] if pids else process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return stopped


def _events(record: Path) -> list[dict[str, object]]:
    if not record.exists():
        return []
    # The last line of a process that was killed may be half of one.
    text = record.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _read(record: Path) -> ObservedRun:
    run = ObservedRun()
    for event in _events(record):
        match event:
            case {"collected": list(ids)}:
                run.collected = ids
            case {"slow": dict(counts)}:
                run.slow = counts
            case {"started": str(test)}:
                run.running.add(test)
            case {"failed": str(test), "text": str(text)}:
                run.failures[test] = "\n".join(filter(None, (run.failures.get(test), text)))
            case {"ended": str(test), "outcome": str(outcome), "seconds": float() | int() as spent}:
                run.outcomes[test] = outcome
                run.seconds[test] = float(spent)
                run.running.discard(test)
            case {"exit": int(status)}:
                run.exit_status = status
            case _:
                pass
    return run
