"""``python -m tests.mutants``: the faults it finds, the tests it chooses, what it reports."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from tests.mutants import mutations as sources
from tests.mutants.__main__ import gone, sample
from tests.mutants.belonging_tests import belonging_tests, quickest_first
from tests.mutants.mutant_results import Judged, Results, Verdict, report
from tests.mutants.mutant_run import Outcome
from tests.mutants.mutations import Mutation, mutated_files, mutated_tree, mutations

SOURCE = '''
"""A docstring with 1."""
from dataclasses import dataclass
LIMIT: tuple[int, ...] = (3,)

@dataclass(frozen=True)
class Row:
    __slots__ = ("a", "b")[:1]

def f(a: int, b: int = 0) -> int:
    assert a < b, f"{a + 1}"
    if a < b and not a:
        raise ValueError(f"{a + 2}")
    return a + b if g(a, help=f"{a + 3}") else zip(a, strict=True)
'''
CHANGES = [
    "3 -> 4",
    "0 -> 1",
    "a < b -> a <= b",
    "a < b and (not a) -> a < b or not a",
    "not a -> a",
    "a + b -> a - b",
    "g(a, help=f'{a + 3}') -> not g(a, help=f'{a + 3}')",
]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """A file in a checkout of its own."""
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    (tmp_path / "one_file.py").write_text(SOURCE)
    mutations.cache_clear()
    yield "one_file.py"
    mutations.cache_clear()


def test_faults_are_where_a_test_can_see_them(checkout: str):
    assert [mutation.change for mutation in mutations(checkout)] == CHANGES


def test_a_fault_changes_one_place_and_marks_its_statement(checkout: str):
    fault = next(m for m in mutations(checkout) if m.change == "a + b -> a - b")
    lines = ast.unparse(mutated_tree(fault)).splitlines()
    plain = ast.unparse(ast.parse(SOURCE)).splitlines()
    assert lines[-2:] == ["    __mutant_reached__()", plain[-1].replace("a + b", "a - b")]
    assert lines[:-2] == plain[:-1]


def test_the_key_of_a_fault_outlives_other_lines(checkout: str, tmp_path: Path):
    before = [mutation.key for mutation in mutations(checkout)]
    (tmp_path / checkout).write_text("# a comment\n\n" + SOURCE)
    mutations.cache_clear()
    assert [mutation.key for mutation in mutations(checkout)] == before
    assert len(set(before)) == len(before)


@pytest.mark.slow
def test_the_nearest_tests_come_first():
    found = belonging_tests("passes/gqa/assign_heads.py", 4)
    assert found[0] == "tests/passes/gqa/test_cache_layout.py"
    assert "tests/filecheck/cse" in belonging_tests("passes/canonical/cse.py", 4)
    # The command line finds its commands by name.
    shrink = belonging_tests("passes/validate/minify.py", 24)
    assert "tests/graphgen/cli/test_minify_cmd.py" in shrink


@pytest.mark.slow
def test_tests_of_a_folder_belong_to_its_files_whatever_they_import():
    found = belonging_tests("passes/gqa/assign_heads.py", 24)
    assert {"tests/passes/gqa/test_head_map.py", found[0]} <= set(found[:6])
    assert "tests/lowering/check/test_check_legalized.py" in belonging_tests(
        "passes/legalize/neuron_gather_scatter.py", 12
    )


def test_tests_that_killed_come_first_and_those_that_take_long_later():
    tests = ["tests/a/test_slow.py", "tests/a/test_quick.py", "tests/b/test_far.py"]
    tests += ["tests/a/test_file.py"]
    seconds = {"tests/a/test_slow.py": 4.5, "tests/a/test_quick.py": 0.5}
    ordered = quickest_first(tests, "a/file.py", ["tests/b/test_far.py"], seconds)
    places = [tests.index(test) for test in ordered]
    assert places == [2, 3, 1, 0]


def run_alone(
    tests: Sequence[Path], enough_s: float, limit_s: float, file: str | None = None
) -> Outcome:
    """The outcome without a fault, or with the first one of a file, by a process of its own.

    The runner forks, which a process with threads, such as one that has run XLA, may not survive.
    """
    names = [str(path) for path in tests]
    code = (
        "import json; from dataclasses import asdict;"
        "from tests.mutants.mutant_run import run_mutant;"
        "from tests.mutants.mutations import mutations;"
        f"fault = mutations({file!r})[0] if {file!r} else None;"
        f"print(json.dumps(asdict(run_mutant(fault, {names!r}, {enough_s}, {limit_s}))))"
    )
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return Outcome(**json.loads(ran.stdout))


TESTS = """
import time

def busy():
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass

def test_1(): busy()
def test_2(): busy()
def test_3(): assert False
"""


@pytest.mark.slow
def test_a_file_that_used_its_share_goes_on_after_the_others(tmp_path: Path):
    one, two = tmp_path / "test_one.py", tmp_path / "test_two.py"
    one.write_text(TESTS)
    two.write_text("def test_it(): pass\n")
    # No fault is executed: a file gets an eighth, and is not continued.
    found = run_alone([two, one], 4.0, 20.0)
    assert (found.killed, found.hung, found.reached) == (False, False, False)
    assert list(found.spent) == [str(two), str(one)]
    # With time for all of them the last test fails.
    found = run_alone([two, one], 80.0, 20.0)
    assert found.killed
    assert found.by.endswith("test_one.py::test_3")


@pytest.mark.slow
def test_a_test_that_does_not_end_is_stopped(tmp_path: Path):
    path = tmp_path / "test_endless.py"
    path.write_text("def test_it():\n    while True: pass\n")
    found = run_alone([path], 5.0, 1.5)
    assert (found.killed, found.by, found.hung) == (True, str(path), True)


UNITS = "graphgen/report/units.py"
# None of these fails because of the fault.
STRAY = """
def test_elsewhere():
    assert False

def test_left():
    size(1000)
    raise ResourceWarning("an open file")

def test_collected():
    size(1000)
    raise ExceptionGroup("several", [pytest.PytestUnraisableExceptionWarning("a process")])
"""
SEES = """
def test_sees():
    assert size(1000) == "1.00 kB"
"""
WARNS = """
def test_warns():
    if size(1000) != "1.00 kB":
        raise RuntimeWarning("overflow")
"""
# The result of a fixture that another test has made.
SHARED = """
@pytest.fixture(scope="module")
def made():
    return size(1000)

def test_before(made):
    pass

def test_after(made):
    assert made == "1.00 kB"
"""
# Collected after the last test, when pytest itself raises the warning.
LEFT = """
import gc, warnings

class Left:
    def __init__(self):
        self.itself = self

    def __del__(self):
        warnings.warn("a process is still running", ResourceWarning)

def test_leaves():
    size(1000)
    gc.disable()
    Left(), Left()
"""


@pytest.mark.parametrize(
    ("text", "killer", "how"),
    [
        (STRAY, "", ""),
        (STRAY + SEES, "test_sees", ""),
        (STRAY + WARNS, "test_warns", "in a second run by itself"),
        (SHARED, "test_after", "in a second run by itself"),
        (LEFT, "", ""),
        (LEFT + SEES, "test_sees", ""),
    ],
    ids=["stray", "seen", "warning", "fixture", "left", "left and seen"],
)
@pytest.mark.one_in(2)
def test_a_kill_is_a_failure_of_a_test_that_executed_the_fault(
    text: str, killer: str, how: str, tmp_path: Path
):
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    path = tmp_path / "test_one.py"
    path.write_text(f"import pytest\nfrom graphgen.report.units import size\n{text}")
    found = run_alone([path], 80.0, 60.0, UNITS)
    assert (found.killed, found.by.rpartition("::")[2], found.how) == (bool(killer), killer, how)


def test_a_sample_is_the_same_each_time_and_smaller_in_fewer_files():
    chosen = sample(["passes/gqa/*"], [], seed=1, count=20, per_file=None)
    assert chosen == sample(["passes/gqa/*"], [], seed=1, count=20, per_file=None)
    assert chosen != sample(["passes/gqa/*"], [], seed=2, count=20, per_file=None)
    files = {mutation.file for mutation in chosen}
    left = sample(["passes/gqa/*"], [*files], seed=1, count=20, per_file=1)
    assert files.isdisjoint(mutation.file for mutation in left)
    assert "graphgen/cli/main.py" not in mutated_files()


def test_judgements_of_faults_that_are_not_in_the_source_are_found():
    there = mutations("passes/canonical/cse.py")[0].key
    moved = there.replace("cse.py", "cse_of_old.py")
    assert gone([there, f"{there}0", moved]) == [f"{there}0", moved]


def outcome(killed: bool) -> Outcome:
    return Outcome(killed, "test" if killed else "", "", hung=False, reached=True, seconds=1.0)


JUDGED = Judged("0abc123", "source", "tests", 5.0)


def test_outcomes_hold_for_the_same_source_and_survivors_for_the_same_tests(tmp_path: Path):
    fault = Mutation("a.py", 1, "x < y", "x < y -> x <= y", 1, 0)
    path = tmp_path / "results.jsonl"

    def known(source: str, tests: str, enough_s: float) -> bool:
        return Results(path).known(fault, source, lambda: tests, enough_s)

    assert not known("source", "tests", 5.0)
    Results(path).add(fault, JUDGED, outcome(killed=False))
    assert known("source", "tests", 5.0)
    assert not known("source", "tests", 6.0)
    assert not known("source", "other tests", 5.0)
    Results(path).add(fault, JUDGED, outcome(killed=True))
    assert known("source", "other tests", 6.0)
    assert not known("other source", "tests", 5.0)
    assert json.loads(path.read_text())["revision"] == "0abc123"


def test_a_report_wants_every_survivor_judged(tmp_path: Path):
    results = Results(tmp_path / "results.jsonl")
    faults = [Mutation("b/a.py", n, f"x < {n}", "x -> y", 1, n) for n in range(10)]
    for fault in faults:
        results.add(fault, JUDGED, outcome(killed=fault.line > 0))
    assert not report(faults, results, {}).good_enough
    judged = report(faults, results, {faults[0].key: Verdict("equivalent", "It is.")})
    assert judged.good_enough
    assert judged.as_text().splitlines() == [
        "b/a.py:0: x -> y",
        "    x < 0",
        "    equivalent: It is.",
        "package    mutants   run  killed    share",
        "b               10    10       9   90.0 %",
        "all             10    10       9   90.0 %",
        "survivors: 1 equivalent",
    ]


def test_a_report_counts_by_package_what_is_there_and_what_is_out_of_date(tmp_path: Path):
    results = Results(tmp_path / "results.jsonl")
    faults = [Mutation(f"{name}/a.py", 1, "x < y", "x -> y", 1, 0) for name in "bcd"]
    for fault in faults[:2]:
        results.add(fault, JUDGED, outcome(killed=True))
    summary = report(faults, results, {}, [fault.key for fault in faults[1:]])
    assert not summary.good_enough  # one was not run
    assert summary.as_text().splitlines() == [
        "package    mutants   run  killed    share",
        "b                1     1       1  100.0 %",
        "c                1     1       1  100.0 %",
        "d                1     0       0     none",
        "all              3     2       2  100.0 %",
        "1 outcomes are older than the file or its tests",
    ]
    found = summary.as_json()
    assert (found["chosen"], found["run"], found["outdated"]) == (3, 2, 1)


@pytest.mark.slow
def test_a_fault_is_killed_and_one_without_consequence_survives(tmp_path: Path):
    options = ["--file", "passes/canonical/cse.py", "--count", "3"]
    results = ["--results", str(tmp_path / "results.jsonl")]
    command = [sys.executable, "-m", "tests.mutants", *options, *results]
    ran = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=False)
    table = [line.split() for line in ran.stdout.splitlines()]
    assert ["passes", "3", "3"] in [row[:3] for row in table], ran.stderr
    again = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=False)
    assert "3 mutants, 0 to run" in again.stderr
