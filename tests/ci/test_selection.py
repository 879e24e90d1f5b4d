"""Which slow tests CI runs: those of changed code, and all the others in ten commits."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.ci.selection import GROUPS, rotating_groups, slow_order, tests_of_changes
from tests.mutants import belonging_tests

# pytest would take the function for a test.
chosen = tests_of_changes
del tests_of_changes

MANY = {f"tests/passes/room{n % 7}/test_{n}.py": 1 + n * n % 17 for n in range(90)}
TESTS = [
    "tests/passes/heads/test_cache.py",
    "tests/passes/heads/deep/test_more.py",
    "tests/passes/other/test_other.py",
    "tests/passes/test_pipelines.py",
    "tests/lowering/test_heads.py",
]


@pytest.mark.parametrize("first", [0, 7, 4321])
def test_ten_commits_in_a_row_run_every_file(first: int):
    changed = ["passes/room3/file.py"]
    ran: list[str] = []
    for number in range(first, first + GROUPS):
        order = slow_order(MANY, changed, {}, number, {}, 30.0)
        assert sorted(order.files) == sorted(MANY)
        assert order.near
        assert all("/room3/" in file for file in order.near)
        ran += [file for file in order.due if "/room3/" not in file]
    assert sorted(ran) == sorted(file for file in MANY if "/room3/" not in file)


def test_the_first_of_a_group_is_another_one_the_next_time():
    once, again = (slow_order(MANY, [], {}, number, {}, 30.0) for number in (3, 3 + GROUPS))
    assert sorted(once.due) == sorted(again.due)
    assert once.due != again.due
    assert once.near == again.near == []


def test_groups_take_about_the_same_time():
    times = {name: float(count) for name, count in MANY.items()}
    sums = [sum(times[name] for name in group) for group in rotating_groups(times)]
    assert max(sums) - min(sums) <= 2 * max(times.values())
    long = {**times, "tests/passes/test_long.py": 1000.0}
    assert sorted(name for group in rotating_groups(long) for name in group) == sorted(long)


def test_recorded_seconds_take_the_place_of_the_estimate():
    slow = {"tests/test_a.py": 1, "tests/test_b.py": 1}
    near = slow_order(slow, slow, {}, 0, {"tests/test_a.py": 99.0, "tests/test_b.py": 1.0}, 50.0)
    assert near.near in (["tests/test_a.py"], ["tests/test_b.py"])
    both = slow_order(slow, slow, {}, 0, {}, 50.0)
    assert sorted(both.near) == sorted(slow)


def test_much_changed_code_leaves_the_others_their_turn():
    order = slow_order(MANY, MANY, {}, 5, {}, 40.0)
    assert 0 < len(order.near) < len(MANY)
    assert order.due
    assert sorted(order.files) == sorted(MANY)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("passes/heads/file.py", TESTS[:2]),
        ("passes/heads/source/file.cc", TESTS[:2]),
        ("passes/heads/deep/file.py", TESTS[1:2]),
        ("passes/pipelines.py", TESTS[3:4]),
        ("passes/new/file.py", []),
        ("tests/passes/other/test_other.py", TESTS[2:3]),
        ("tests/passes/heads/conftest.py", TESTS[:2]),
        ("tests/conftest.py", []),
        ("docs/kernels.md", []),
        ("Makefile", []),
    ],
)
def test_a_change_has_the_tests_of_its_room(changed: str, expected: list[str]):
    assert chosen(TESTS, [changed], {}) == set(expected)


def test_a_changed_module_has_the_tests_that_import_it():
    importing = {"passes/new/file.py": [TESTS[4], "passes/heads/file.py"]}
    assert chosen(TESTS, ["passes/new/file.py"], importing) == {TESTS[4]}


TREE = {
    "passes/room/__init__.py": "from graphgen.passes.room.inner import given",
    "passes/room/inner.py": "def given(): ...",
    "passes/room/other.py": "from graphgen.passes.room import given",
    "tests/oracles/made.py": "",
    "tests/test_inner.py": "def test_a():\n    from graphgen.passes.room.inner import given",
    "tests/test_package.py": "from graphgen.passes.room import given",
    "tests/test_far.py": "import graphgen.passes.room.other",
    "tests/test_oracle.py": "from tests.oracles.made import anything",
}
CACHES = (
    belonging_tests.importers,
    belonging_tests._trees,
    belonging_tests._files,
    belonging_tests._home,
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """A small checkout in the place of this one."""
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(belonging_tests, "ROOT", tmp_path)
    for cache in CACHES:
        cache.cache_clear()
    yield [name for name in TREE if "/test_" in name]
    for cache in CACHES:
        cache.cache_clear()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # Through the package that hands its name on too.
        ("passes/room/inner.py", {"tests/test_inner.py", "tests/test_package.py"}),
        ("passes/room/other.py", {"tests/test_far.py"}),
        ("tests/oracles/made.py", {"tests/test_oracle.py"}),
    ],
)
def test_imports_are_those_of_the_tree(changed: str, expected: set[str], tree: list[str]):
    assert chosen(tree, [changed], belonging_tests.importers()) == expected
