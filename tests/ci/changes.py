"""What git says of a checkout: the files that changed, and the number of its commit."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

# Where no commit is named to compare with.
RECENT_COMMITS = 20


@dataclass(frozen=True, slots=True)
class Changes:
    """What is new in a checkout.

    Attributes:
        files: that were added, changed or removed.
        number: one more in each commit, as far as the history is there.
        notes: for the log: what was compared, and what the history lacks.
    """

    files: frozenset[str]
    number: int
    notes: tuple[str, ...]


def changes(root: Path, base: str) -> Changes:
    """Compare the commit of a checkout with another.

    Args:
        root: the checkout.
        base: the other commit; empty, or one that is not there, for recent commits.
    """
    if _git(root, "rev-parse", "HEAD") is None:
        return Changes(
            frozenset(), 0, ("this is not a checkout of git: no file counts as changed",)
        )
    notes: list[str] = []
    number, numbered = _number(root)
    notes += [numbered] if numbered else []
    start = None
    if base:
        start = _git(root, "merge-base", base, "HEAD")
        start = start or _git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
        if start is None:
            notes.append(f"CI_BASE={base} is not in this clone")
    else:
        notes.append("CI_BASE names no commit")
    if start is None:
        start, count = _recent(root)
        notes.append(f"compared with {start[:12]}, {count} commits ago")
        if count == 0:
            notes.append("the clone holds no commit before this one: no file counts as changed")
    else:
        notes.append(f"compared with {start[:12]}")
    names = _git(root, "diff", "--name-only", "--no-renames", "-z", start, "HEAD") or ""
    return Changes(frozenset(filter(None, names.split("\0"))), number, tuple(notes))


def _recent(root: Path) -> tuple[str, int]:
    """The commit that is as far back as there are recent ones, and how far that is."""
    listed = _git(root, "rev-list", "--first-parent", f"--max-count={RECENT_COMMITS + 1}", "HEAD")
    commits = (listed or "").split()
    return commits[-1], len(commits) - 1


def _number(root: Path) -> tuple[int, str]:
    """The count of commits; in a shallow clone a number that its commit's name gives."""
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        note = "the clone is shallow: the commit's name chooses the tenth of the slow tests"
        return int((_git(root, "rev-parse", "HEAD") or "0")[:8], 16), note
    return int(_git(root, "rev-list", "--count", "HEAD") or 0), ""


def _git(root: Path, *arguments: str) -> str | None:
    """What a command of git prints; ``None`` if it fails or there is no git."""
    try:
        ran = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None
