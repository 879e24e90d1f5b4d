"""Run failed tests once more, each alone: one that fails again has failed, the others are flaky."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.ci.observed_run import ObservedRun, observed_run
from tests.ci.recorder import Plan

MOST_FLAKY = 3
# With more failures than MOST_FLAKY a run has failed whatever they do alone; the first ones tell
# most about the reason.
MOST_RERUNS = 12
RERUN_LIMIT_S = 900
_NOTHING_COLLECTED = 5
_FLAKY_LINE = re.compile(r"(?P<date>\d{4}-\d\d-\d\d)\t(?P<test>[^\t]+)\t(?P<cause>[^\t]*\S)")


@dataclass(slots=True)
class Verdict:
    """What the tests of a run have shown, with those that ran twice.

    Attributes:
        failed: output of each test that failed twice, or was not run again.
        flaky: both outputs of each test that failed and then passed alone.
        broken: why a run as a whole is a failure, whatever its tests did.
    """

    failed: dict[str, str] = field(default_factory=dict[str, str])
    flaky: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    broken: list[str] = field(default_factory=list[str])


def judge(run: ObservedRun, root: Path, verdict: Verdict) -> None:
    """Run again what has failed, and add to the verdict.

    A test whose process has died or taken too long has failed like another.

    Args:
        run: that of many tests.
        root: the working directory.
        verdict: of the runs before.
    """
    verdict.broken += _broken(run)
    for number, (test, first) in enumerate(run.failures.items()):
        if number >= MOST_RERUNS:
            verdict.failed[test] = f"{first}\n(not run again: more than {MOST_RERUNS} have failed)"
            continue
        print(f"==> again, alone: {test}", flush=True)
        passed, second = run_alone(test, root)
        if passed:
            verdict.flaky[test] = (first, second)
        else:
            verdict.failed[test] = second


def run_alone(test: str, root: Path) -> tuple[bool, str]:
    """Run one test in a process of its own, with the same seed; returns if it passed, and output.

    Args:
        test: its id, or the name of a file of tests, which is run whole.
        root: the working directory.
    """
    file, _, name = test.partition("::")
    plan = Plan(only=[test]) if name else None
    command = [sys.executable, "-m", "pytest", "-n", "0", file]
    run = observed_run(command, root, RERUN_LIMIT_S, plan, quiet=True)
    passed = run.exit_status == 0 and (not name or run.outcomes.get(test) == "passed")
    return passed, run.output


def reasons(verdict: Verdict, listed: Iterable[str]) -> list[str]:
    """Why a run is a failure; empty if it is none.

    Args:
        verdict: of all its tests.
        listed: tests that are known to be flaky.
    """
    found = list(verdict.broken)
    found += [f"failed twice: {test}" for test in verdict.failed]
    known = frozenset(listed)
    found += [f"flaky, and in flaky.txt already: {test}" for test in verdict.flaky if test in known]
    if len(verdict.flaky) > MOST_FLAKY:
        found.append(f"{len(verdict.flaky)} tests are flaky, more than {MOST_FLAKY}")
    return found


def listed_flaky(path: Path) -> list[str]:
    """The ids in a list of flaky tests: a line each, of date, id and cause with tabs between.

    Raises:
        ValueError: a line is not of that form.
    """
    tests: list[str] = []
    lines: Sequence[str] = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#"):
            found = _FLAKY_LINE.fullmatch(line)
            if found is None:
                raise ValueError(
                    f"{path.name}:{number}: not a date, a test and a cause with tabs between"
                )
            tests.append(found["test"])
    return tests


def _broken(run: ObservedRun) -> list[str]:
    """Why the end of a run says nothing good, whatever its tests did."""
    if run.stopped:
        return []
    missing = len(run.not_run)
    if run.exit_status is None:
        return [f"pytest died or did not begin; {missing} tests have not run"]
    if run.exit_status not in (0, 1, _NOTHING_COLLECTED):
        return [f"pytest ended with status {run.exit_status}; {missing} tests have not run"]
    if missing:
        return [f"{missing} tests have not run, such as {run.not_run[0]}"]
    if run.exit_status == 1 and not run.failures:
        return ["pytest ended with status 1, and no test is known to have failed"]
    return []
