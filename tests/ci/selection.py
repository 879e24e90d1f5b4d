"""Choose the files whose slow tests run, and in which order.

First those of changed code: of the same-named room, and those that import a changed module. Then a
tenth of the others, another one in each commit, so that ten commits in a row run each file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TypeVar

from tests.mutants.mutations import PACKAGES

T = TypeVar("T")

GROUPS = 10
# Of a test that no run has been recorded of.
SECONDS_PER_TEST = 1.5


@dataclass(frozen=True, slots=True)
class SlowOrder:
    """Files of slow tests in the order in which they run.

    Attributes:
        near: those of changed code.
        due: this commit's tenth of the others.
        later: what runs if time is left: changed code for which ``near`` has no time, then others.
    """

    near: Sequence[str]
    due: Sequence[str]
    later: Sequence[str]

    @property
    def files(self) -> list[str]:
        """All of them."""
        return [*self.near, *self.due, *self.later]


def slow_order(
    slow: Mapping[str, int],
    changed: Collection[str],
    importers: Mapping[str, Collection[str]],
    number: int,
    seconds: Mapping[str, float],
    near_limit_s: float,
) -> SlowOrder:
    """Order the files with slow tests.

    Args:
        slow: number of slow tests in each file.
        changed: files that changed.
        importers: the files that import each file.
        number: that of the commit.
        seconds: recorded time of the slow tests of a file; estimated where there is none.
        near_limit_s: seconds after which tests of changed code leave their place to ``due``, since
            the others would not run while much changes.
    """
    times = {file: seconds.get(file, SECONDS_PER_TEST * count) for file, count in slow.items()}
    groups = rotating_groups(times)
    # From this commit's group on; within it from another file every time it is this one's turn.
    turn = number % GROUPS
    groups[turn] = _rotated(groups[turn], number // GROUPS)
    ring = [file for group in _rotated(groups, turn) for file in group]
    wanted = tests_of_changes(slow, changed, importers)
    near: list[str] = []
    late: list[str] = []
    spent = 0.0
    # A changed test first, and at least one file however long it takes.
    for file in sorted((file for file in ring if file in wanted), key=lambda f: f not in changed):
        spent += times[file]
        (near if spent <= near_limit_s or not near else late).append(file)
    due = [file for file in groups[turn] if file not in near]
    taken = {*near, *due}
    later = [file for file in (*late, *ring) if file not in taken]
    return SlowOrder(near, due, list(dict.fromkeys(later)))


def rotating_groups(times: Mapping[str, float]) -> list[list[str]]:
    """Ten groups that take about the same time; a new file moves few of the others.

    Args:
        times: seconds of each file.
    """
    groups: list[list[str]] = [[] for _ in range(GROUPS)]
    whole = sum(times.values()) or 1.0
    before = 0.0
    for file in sorted(times, key=lambda name: sha256(name.encode()).digest()):
        middle = before + times[file] / 2
        groups[min(int(GROUPS * middle / whole), GROUPS - 1)].append(file)
        before += times[file]
    return groups


def tests_of_changes(
    tests: Collection[str], changed: Collection[str], importers: Mapping[str, Collection[str]]
) -> set[str]:
    """Those of ``tests`` that changed, mirror the folder of a changed file, or import it.

    Args:
        tests: names of files.
        changed: files that changed.
        importers: the files that import each file.
    """
    found: set[str] = set()
    for file in changed:
        found |= {file, *importers.get(file, ())} | _mirroring(file, tests)
    return found.intersection(tests)


def _mirroring(file: str, tests: Collection[str]) -> set[str]:
    """The tests of a file's room: of the deepest folder that mirrors one of its own."""
    path = PurePosixPath(file)
    if path.parts[0] == "tests":
        if path.name != "conftest.py" or len(path.parts) == 2:
            return set()
        return {test for test in tests if path.parent in PurePosixPath(test).parents}
    if path.parts[0] not in PACKAGES:
        return set()
    for folder in path.parents:
        mirror = "tests" / folder
        if len(folder.parts) == 1 and folder != path.parent:
            break
        # A file of the package itself has the tests beside those of its rooms.
        found = {
            test
            for test in map(PurePosixPath, tests)
            if (mirror == test.parent if len(folder.parts) == 1 else mirror in test.parents)
        }
        if found or len(folder.parts) == 1:
            return {str(test) for test in found}
    return set()


def _rotated(items: Sequence[T], by: int) -> list[T]:
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]
