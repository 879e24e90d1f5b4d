"""Run the tests as CI does: `make test`, then slow tests for a quarter of an hour.

    python -m tests.ci                     # after `make check`; CI_BASE names the commit before
    python -m tests.ci --record-seconds    # runs every slow test, and writes slow_seconds.json

A test that fails runs once more, alone, with the same seed. It is a failure if it fails again, or
is in tests/flaky.txt; otherwise it is flaky. More than three flaky tests are a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.ci.changes import changes
from tests.ci.observed_run import ObservedRun, observed_run
from tests.ci.recorder import Plan
from tests.ci.rerun import Verdict, judge, listed_flaky, reasons
from tests.ci.selection import slow_order
from tests.mutants.belonging_tests import importers
from tests.mutants.mutations import ROOT

FLAKY = ROOT / "tests" / "flaky.txt"
SECONDS = Path(__file__).with_name("slow_seconds.json")
# Ends what hangs although each of its tests ends.
TEST_LIMIT_S = 3600.0
SLOW_LIMIT_S = 900.0
# Of them for tests of changed code, while other slow tests wait for their turn.
NEAR_SHARE = 2 / 3
PYTEST = (sys.executable, "-m", "pytest")
SPREAD = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
SLOW = ("-m", "slow and not exhaustive")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages; returns the exit code."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.ci", None, __doc__, formatter_class=shown)
    parser.add_argument("--record-seconds", action="store_true", help="of every slow test")
    if parser.parse_args(arguments).record_seconds:
        return record_seconds()
    listed = listed_flaky(FLAKY)
    verdict = Verdict()
    say("==> make test")
    quick = observed_run(["make", "test"], ROOT, TEST_LIMIT_S)
    if quick.stopped:
        verdict.broken.append(f"make test was stopped after {TEST_LIMIT_S:.0f} s")
    judge(quick, ROOT, verdict)
    runs = [quick]
    if verdict.failed or verdict.broken:
        say("==> slow tests: none has run, since make test has failed")
    else:
        runs.append(slow_stage(quick.slow))
        judge(runs[-1], ROOT, verdict)
    return close(runs, verdict, listed)


def slow_stage(slow: Mapping[str, int]) -> ObservedRun:
    """Run files of slow tests until the time is over, and list those that ran.

    Args:
        slow: number of slow tests in each file.
    """
    found = changes(ROOT, os.environ.get("CI_BASE", ""))
    near_s = NEAR_SHARE * SLOW_LIMIT_S * (os.cpu_count() or 1)
    importing = importers() if found.files else {}
    order = slow_order(slow, found.files, importing, found.number, recorded_seconds(), near_s)
    say(f"==> slow tests, for {SLOW_LIMIT_S / 60:.0f} minutes")
    for note in found.notes:
        say(f"    {note}")
    say(f"    {len(found.files)} files changed: {listing(order.near) or 'no slow tests'}")
    say(f"    the turn of commit {found.number}: {listing(order.due) or 'no other slow tests'}")
    say(f"    then, while time is left, {len(order.later)} other files")
    files = order.files
    if not files:
        return ObservedRun(exit_status=0)
    run = observed_run([*PYTEST, *SPREAD, *SLOW, *files], ROOT, SLOW_LIMIT_S, Plan(files=files))
    for line in account(run, files):
        say(line)
    return run


def account(run: ObservedRun, files: Sequence[str]) -> list[str]:
    """Lines that say which files ran, in part or whole, and which did not."""
    ended = Counter(test.partition("::")[0] for test in run.outcomes)
    wanted = Counter(test.partition("::")[0] for test in run.collected)
    seconds = seconds_of_files(run)
    lines: list[str] = []
    none: list[str] = []
    for file in files:
        if ended[file] and ended[file] >= wanted[file]:
            lines.append(f"ran: {file} ({ended[file]} tests, {seconds[file]:.0f} s)")
        elif ended[file]:
            lines.append(f"ran in part: {file} ({ended[file]} of {wanted[file]} tests)")
        else:
            none.append(file)
    lines += [f"did not run: {file}" for file in none]
    if run.stopped:
        lines.append(
            f"slow tests were stopped after {SLOW_LIMIT_S / 60:.0f} minutes: the "
            f"{len(run.not_run)} tests that did not run have shown no failure, and no success"
        )
    return lines


def close(runs: Sequence[ObservedRun], verdict: Verdict, listed: Sequence[str]) -> int:
    """Print what failed, the flaky tests with both outputs, and the counts; returns the code."""
    for test, text in verdict.failed.items():
        say(f"==> failed twice: {test}", text)
    for test, (first, second) in verdict.flaky.items():
        say(f"==> flaky: {test}", "--> failed at first:", first, "--> passed alone:", second)
    if verdict.flaky:
        say("flaky tests; tests/flaky.txt gets a line for each, with the cause behind a tab:")
        say(*(f"\t{test}" for test in verdict.flaky))
    found = reasons(verdict, listed)
    for reason in found:
        say(f"error: {reason}")
    outcomes = {test: kind for run in runs for test, kind in run.outcomes.items()}
    outcomes |= dict.fromkeys(verdict.flaky, "passed") | dict.fromkeys(verdict.failed, "failed")
    counts = Counter(outcomes.values())
    # What is wrong with a run as a whole is counted too: no line without a failure ends a bad run.
    failed = max(counts["failed"], len(found))
    say(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped")
    return 1 if found else 0


def record_seconds() -> int:
    """Run every slow test and write how long each file takes; returns pytest's exit code."""
    run = observed_run([*PYTEST, *SPREAD, *SLOW], ROOT, 24 * 3600.0)
    whole = {file: round(spent, 1) for file, spent in sorted(seconds_of_files(run).items())}
    SECONDS.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 1 if run.exit_status is None else run.exit_status


def recorded_seconds() -> dict[str, float]:
    """Seconds of the slow tests of each file, where they have been recorded."""
    return json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.exists() else {}


def seconds_of_files(run: ObservedRun) -> dict[str, float]:
    """Seconds of the tests of each file that ran."""
    found: dict[str, float] = {}
    for test, spent in run.seconds.items():
        file = test.partition("::")[0]
        found[file] = found.get(file, 0.0) + spent
    return found


def listing(files: Sequence[str]) -> str:
    """Names of files, without the folder that all are in."""
    return ", ".join(file.removeprefix("tests/") for file in files)


def say(*lines: str) -> None:
    """Print lines at once, in their place among those of other processes."""
    print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    # As after Ctrl-C: the tests end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
