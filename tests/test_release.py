"""What ``make release`` finds missing, in small repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import release

CHANGES = """# Changelog

## {head}

First version.

### Models

- Llama.

## 0.0.9

### Models

- GPT-2.
"""


def repository(folder: Path, head: str = "0.1.0, 1 January 2027", version: str = "0.1.0") -> Path:
    (folder / "graphgen").mkdir()
    files = {
        "pyproject.toml": '[project]\nversion = "0.1.0"\n',
        "graphgen/version.py": f'__version__ = "{version}"\n',
        "CITATION.cff": "cff-version: 1.2.0\nversion: 0.1.0\n",
        "CHANGELOG.md": CHANGES.format(head=head),
        ".gitignore": "dist\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Begin")
    return folder


def git(folder: Path, *words: str) -> None:
    """Run git without the settings of the user."""
    settings = ("user.name=a", "user.email=a@b", "commit.gpgsign=false", "tag.gpgsign=false")
    given = [word for setting in settings for word in ("-c", setting)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", "-C", str(folder), *given, *words], check=True, env=plain)


def test_a_ready_version_has_its_notes_and_what_remains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert release.main(repository(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert "nothing was tagged or uploaded" in shown
    assert "git tag -a v0.1.0 -F dist/notes.md" in shown
    notes = (tmp_path / "dist" / "notes.md").read_text("utf-8")
    assert notes.startswith("# graphgen 0.1.0, 1 January 2027\n\nFirst version.\n\n### Models\n")
    assert notes.endswith("- Llama.\n")


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"head": "Unreleased (0.1.0)"}, "replace 'Unreleased (0.1.0)'"),
        ({"version": "0.2.0"}, "graphgen/version.py states 0.2.0, not 0.1.0"),
        ({"head": "0.3.0"}, "CHANGELOG.md states 0.3.0, not 0.1.0"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, changes: dict[str, str], missing: str):
    (found,) = release.obstacles(repository(tmp_path, **changes))
    assert missing in found


def test_a_tag_and_changes_that_are_not_committed_are_named(tmp_path: Path):
    root = repository(tmp_path)
    git(root, "tag", "v0.1.0")
    (root / "more.py").write_text("", "utf-8")
    found = list(release.obstacles(root))
    assert found == ["there are changes that are not committed", "there is a tag v0.1.0"]


def test_every_file_of_this_repository_states_one_version():
    assert len(set(release.versions(release.ROOT).values())) == 1
