"""What CI takes for changed: of whole clones, of shallow ones, and without git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.ci.changes import RECENT_COMMITS, changes


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty-five commits, of which each adds a file."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(25):
        (folder / f"file{number}.py").write_text("")
        commit(folder)
    return folder


def git(folder: Path, *arguments: str) -> str:
    user = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    command = ["git", *user, *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "more")


def test_a_named_commit_is_compared_with(checkout: Path):
    found = changes(checkout, git(checkout, "rev-parse", "HEAD~2"))
    assert found.files == {"file23.py", "file24.py"}
    assert found.number == 25
    assert changes(checkout, "HEAD~1").files == {"file24.py"}


def test_removed_and_renamed_files_have_changed(checkout: Path):
    (checkout / "file0.py").unlink()
    git(checkout, "mv", "file1.py", "renamed.py")
    commit(checkout)
    found = changes(checkout, "HEAD~1")
    assert found.files == {"file0.py", "file1.py", "renamed.py"}
    assert found.number == 26


def test_changes_of_the_other_side_are_not_ours(checkout: Path):
    git(checkout, "checkout", "-q", "-b", "side", "HEAD~3")
    (checkout / "mine.py").write_text("")
    commit(checkout)
    branch = git(checkout, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    (other,) = [name for name in branch if name != "side"]
    assert changes(checkout, other).files == {"mine.py"}


@pytest.mark.parametrize(
    ("base", "note"),
    [("", "CI_BASE names no commit"), ("0" * 40, f"CI_BASE={'0' * 40} is not in this clone")],
)
def test_recent_commits_are_compared_otherwise(checkout: Path, base: str, note: str):
    found = changes(checkout, base)
    assert found.files == {f"file{n}.py" for n in range(25 - RECENT_COMMITS, 25)}
    assert found.notes[0] == note
    assert found.notes[1].endswith(f", {RECENT_COMMITS} commits ago")


@pytest.mark.parametrize("depth", [1, 3])
def test_a_shallow_clone_has_what_it_has(checkout: Path, tmp_path: Path, depth: int):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", str(depth), checkout.as_uri(), str(clone))
    found = changes(clone, git(checkout, "rev-parse", "HEAD~10"))
    assert found.files == {f"file{n}.py" for n in range(26 - depth, 25)}
    notes = "\n".join(found.notes)
    assert "the clone is shallow" in notes
    assert "is not in this clone" in notes
    assert ("no commit before this one" in notes) == (depth == 1)
    assert found.number == int(git(clone, "rev-parse", "HEAD")[:8], 16)


def test_without_git_no_file_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "folder").mkdir()
    found = changes(tmp_path / "folder", "HEAD")
    assert (found.files, found.number) == (frozenset(), 0)
    monkeypatch.setenv("PATH", "")
    assert changes(tmp_path, "").files == frozenset()
