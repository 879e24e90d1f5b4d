"""What CI makes of tests that fail once, twice, or end their process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.ci import __main__ as ci
from tests.ci import rerun
from tests.ci.observed_run import DIED, ObservedRun, observed_run
from tests.ci.recorder import FOLDER, Plan
from tests.ci.rerun import Verdict, judge, listed_flaky, reasons, run_alone

# Fails, or worse, only the first time.
ONCE = """
import os, pathlib, random, time, pytest

def first(name):
    file = pathlib.Path(__file__).parent / f"{name}.ran"
    there = file.exists()
    file.write_text("")
    return not there
"""
COMMAND = [sys.executable, "-m", "pytest"]
WORKERS = [*COMMAND, "-n", "2", "--dist", "loadfile"]
LIMIT_S = 600.0


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own, whose tests have one seed."""
    # Plugins that take a second to load.
    unused = "-p no:cacheprovider -p no:schemathesis -p no:hypothesispytest -p no:anyio"
    monkeypatch.setenv("PYTEST_ADDOPTS", f"--randomly-seed=7 {unused}")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    exhaustive\n")
    return tmp_path


def judged(project: Path, command: Sequence[str] = COMMAND) -> tuple[ObservedRun, Verdict]:
    run = observed_run(command, project, LIMIT_S, quiet=True)
    verdict = Verdict()
    judge(run, project, verdict)
    return run, verdict


MIXED = """
def test_good(): pass

def test_flaky():
    print("seen at first")
    assert not first("flaky")

def test_bad(): assert 1 == 2

def test_skipped(): pytest.skip("not here")

@pytest.fixture
def broken():
    yield
    assert not first("teardown")

def test_teardown(broken): pass
"""


def test_a_failure_runs_again_alone(project: Path):
    (project / "test_mixed.py").write_text(ONCE + MIXED)
    run, verdict = judged(project, WORKERS)
    assert list(verdict.failed) == ["test_mixed.py::test_bad"]
    assert "1 == 2" in verdict.failed["test_mixed.py::test_bad"]
    assert sorted(verdict.flaky) == ["test_mixed.py::test_flaky", "test_mixed.py::test_teardown"]
    first, second = verdict.flaky["test_mixed.py::test_flaky"]
    assert "seen at first" in first
    assert "first('flaky')" in first or 'first("flaky")' in first
    assert "1 passed" in second
    assert reasons(verdict, []) == ["failed twice: test_mixed.py::test_bad"]
    assert run.outcomes["test_mixed.py::test_skipped"] == "skipped"
    assert (len(run.outcomes), run.not_run, run.exit_status) == (5, [], 1)


IDS = """
@pytest.mark.parametrize("x", ["a::b[c]/d", "1", "10", "\\n\\té"])
def test_ids(x): assert not first("ids" + str([ord(c) for c in x]))
"""


def test_a_case_runs_again_exactly(project: Path):
    (project / "test_ids.py").write_text(ONCE + IDS)
    run, verdict = judged(project)
    assert len(run.failures) == 4
    assert verdict.failed == {}
    assert verdict.flaky.keys() == run.failures.keys()
    assert all("1 passed" in second for _, second in verdict.flaky.values())


SEEDED = """
def test_drawn():
    file = pathlib.Path(__file__).parent / "drawn"
    drawn = str(random.random())
    if not file.exists():
        file.write_text(drawn)
        assert False
    assert file.read_text() == drawn
"""


def test_the_seed_is_the_same(project: Path):
    (project / "test_seeded.py").write_text(ONCE + SEEDED)
    _, verdict = judged(project, WORKERS)
    assert list(verdict.flaky) == ["test_seeded.py::test_drawn"]


CRASH = """
def test_before(): pass

def test_once():
    if first("crash"):
        os._exit(3)

def test_always(): os._exit(3)

def test_after(): pass
"""


def test_a_crashed_worker_is_a_failure_of_its_test(project: Path):
    (project / "test_crash.py").write_text(ONCE + CRASH)
    run, verdict = judged(project, [*WORKERS, "--randomly-dont-reorganize"])
    assert list(verdict.failed) == ["test_crash.py::test_always"]
    assert list(verdict.flaky) == ["test_crash.py::test_once"]
    assert "crashed while running" in verdict.flaky["test_crash.py::test_once"][0]
    # What comes after it runs all the same.
    assert run.outcomes["test_crash.py::test_after"] == "passed"
    assert verdict.broken == []


def test_the_end_of_the_only_process_is_a_failure(project: Path):
    (project / "test_crash.py").write_text(ONCE + CRASH)
    run, verdict = judged(project, [*COMMAND, "--randomly-dont-reorganize"])
    assert run.failures == {"test_crash.py::test_once": DIED}
    assert list(verdict.flaky) == ["test_crash.py::test_once"]
    assert verdict.broken == ["pytest died or did not begin; 3 tests have not run"]


def test_a_test_that_hangs_is_a_failure_of_its_own(project: Path):
    (project / "test_hangs.py").write_text(
        ONCE + "def test_hangs():\n    while first('hang'): time.sleep(3600)\n"
    )
    run = observed_run(WORKERS, project, LIMIT_S, quiet=True, test_limit_s=2)
    assert not run.stopped
    verdict = Verdict()
    judge(run, project, verdict)
    assert list(verdict.flaky) == ["test_hangs.py::test_hangs"]
    assert verdict.broken == []


def test_a_file_that_cannot_be_imported_keeps_no_other_from_running(project: Path):
    (project / "test_import.py").write_text("import nothing_of_that_name\n")
    (project / "test_good.py").write_text("def test_good(): pass\n")
    run, verdict = judged(project, WORKERS)
    assert run.outcomes == {"test_good.py::test_good": "passed"}
    assert list(verdict.failed) == ["test_import.py"]
    assert "nothing_of_that_name" in verdict.failed["test_import.py"]
    assert verdict.broken == []


def test_a_run_that_is_stopped_has_shown_no_failure(project: Path):
    (project / "test_long.py").write_text("import time\ndef test_long(): time.sleep(3600)\n")
    run = observed_run(WORKERS, project, 1.0, quiet=True)
    assert run.stopped
    verdict = Verdict()
    judge(run, project, verdict)
    assert verdict == Verdict()


def test_a_command_that_cannot_begin_is_a_failure(project: Path):
    _, verdict = judged(project, ["make", "-f", "nothing"])
    assert verdict.broken == ["pytest died or did not begin; 0 tests have not run"]
    _, verdict = judged(project, [*COMMAND, "--no-such-option"])
    assert len(verdict.broken) == 1


def test_a_test_that_is_gone_has_not_passed(project: Path):
    (project / "test_one.py").write_text("def test_one(): pass\n")
    assert run_alone("test_one.py::test_one", project)[0]
    assert not run_alone("test_one.py::test_other", project)[0]


def test_files_run_in_the_order_of_the_plan(project: Path):
    for name in "abcd":
        (project / f"test_{name}.py").write_text("def test_one(): pass\n")
    order = ["test_c.py", "test_a.py", "test_d.py", "test_b.py"]
    run = observed_run(COMMAND, project, LIMIT_S, Plan(files=order), quiet=True)
    assert [test.partition("::")[0] for test in run.outcomes] == order


NESTED = """
import os, subprocess, sys
def test_nested(tmp_path):
    (tmp_path / "test_inner.py").write_text("def test_inner(): assert False")
    assert subprocess.run([sys.executable, "-m", "pytest", str(tmp_path)]).returncode == 1
"""


def test_a_run_inside_a_test_is_not_recorded(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(FOLDER, raising=False)
    (project / "test_nested.py").write_text(NESTED)
    for command in (COMMAND, WORKERS):
        run = observed_run(command, project, LIMIT_S, quiet=True)
        assert run.outcomes == {"test_nested.py::test_nested": "passed"}
        assert run.failures == {}


def flaky(*tests: str) -> Verdict:
    return Verdict(flaky=dict.fromkeys(tests, ("first", "second")))


def test_flaky_tests_are_let_pass_unless_known_or_many():
    assert reasons(flaky("a", "b", "c"), ["d"]) == []
    assert reasons(flaky("a", "b"), ["b"]) == ["flaky, and in flaky.txt already: b"]
    assert reasons(flaky("a", "b", "c", "d"), []) == ["4 tests are flaky, more than 3"]


def test_failures_without_end_are_not_all_run_again(project: Path, monkeypatch: pytest.MonkeyPatch):
    (project / "test_bad.py").write_text("def test_bad(): assert False\n")
    monkeypatch.setattr(rerun, "MOST_RERUNS", 1)
    failures = {f"test_bad.py::test_{name}": "text" for name in ("bad", "other", "third")}
    verdict = Verdict()
    judge(ObservedRun(failures=failures, exit_status=1), project, verdict)
    assert verdict.failed.keys() == failures.keys()
    again = ["not run again" not in text for text in verdict.failed.values()]
    assert again == [True, False, False]


def test_the_list_of_flaky_tests_has_dates_and_causes(tmp_path: Path):
    path = tmp_path / "flaky.txt"
    path.write_text("# a comment\n\n2026-11-28\ttests/a.py::test_b[c d, e]\tport in use\n")
    assert listed_flaky(path) == ["tests/a.py::test_b[c d, e]"]
    path.write_text("2026-11-28\ttests/a.py::test_b\t\n")
    with pytest.raises(ValueError, match=r"flaky.txt:1: not a date"):
        listed_flaky(path)
    for test in listed_flaky(ci.FLAKY):
        assert (ci.ROOT / test.partition("::")[0]).is_file()


MAKEFILE = "test:\n\t@{python} -m pytest -n 0 -m 'not slow'\n"
SLOW = """
@pytest.mark.slow
def test_slow(): assert not first("slow" + __name__)

@pytest.mark.slow
@pytest.mark.exhaustive
def test_exhaustive(): assert False
"""


@pytest.fixture
def whole(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with quick and slow tests, in the place of this one."""
    (project / "Makefile").write_text(MAKEFILE.format(python=sys.executable))
    (project / "test_quick.py").write_text("def test_quick(): pass\n")
    for name in "ab":
        (project / f"test_{name}.py").write_text(ONCE + SLOW)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.parent))
    monkeypatch.setattr(ci, "ROOT", project)
    monkeypatch.setattr(ci, "FLAKY", project / "flaky.txt")
    monkeypatch.setattr(ci, "SECONDS", project / "seconds.json")
    # To start workers would take longer than the tests do.
    monkeypatch.setattr(ci, "SPREAD", ("-n", "0"))
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    return project


def test_slow_tests_that_do_not_run_are_counted(project: Path):
    (project / "test_quick.py").write_text("def test_quick(): pass\n")
    (project / "test_a.py").write_text(ONCE + SLOW)
    for command in (COMMAND, WORKERS):
        run = observed_run([*command, "-m", "not slow"], project, LIMIT_S, quiet=True)
        assert run.slow == {"test_a.py": 1}
        assert run.collected == ["test_quick.py::test_quick"]


def test_a_run_of_all_ends_with_the_counts(whole: Path, capfd: pytest.CaptureFixture[str]):
    assert ci.main([]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "3 passed, 0 failed, 0 skipped"
    assert {f"ran: test_{name}.py (1 tests, 0 s)" for name in "ab"} <= set(lines)
    assert {f"==> flaky: test_{name}.py::test_slow" for name in "ab"} <= set(lines)
    assert lines.index("--> failed at first:") < lines.index("--> passed alone:")


def test_a_listed_flaky_test_fails_the_run(whole: Path, capfd: pytest.CaptureFixture[str]):
    (whole / "flaky.txt").write_text("2026-11-28\ttest_a.py::test_slow\tthe clock\n")
    assert ci.main([]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-2] == "error: flaky, and in flaky.txt already: test_a.py::test_slow"
    assert lines[-1] == "3 passed, 1 failed, 0 skipped"


def test_slow_tests_do_not_run_after_a_failure(whole: Path, capfd: pytest.CaptureFixture[str]):
    (whole / "test_quick.py").write_text("def test_quick(): assert False\n")
    assert ci.main([]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert "==> slow tests: none has run, since make test has failed" in lines
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"
    assert os.listdir(whole).count("slowtest_a.ran") == 0


def test_recorded_seconds_are_read_again(whole: Path):
    assert ci.recorded_seconds() == {}
    assert ci.main(["--record-seconds"]) == 1
    assert ci.recorded_seconds().keys() == {"test_a.py", "test_b.py"}


def test_a_stopped_run_says_what_did_not_run():
    run = ObservedRun(
        collected=["a.py::test_1", "b.py::test_1", "b.py::test_2", "c.py::test_1"],
        outcomes={"a.py::test_1": "passed", "b.py::test_1": "passed"},
        seconds={"a.py::test_1": 2.0, "b.py::test_1": 1.0},
        stopped=True,
    )
    assert ci.account(run, ["a.py", "b.py", "c.py"]) == [
        "ran: a.py (1 tests, 2 s)",
        "ran in part: b.py (1 of 2 tests)",
        "did not run: c.py",
        "slow tests were stopped after 15 minutes: the 2 tests that did not run have shown no "
        "failure, and no success",
    ]
