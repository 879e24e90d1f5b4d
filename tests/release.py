"""Look whether a version can be released, and write its notes; nothing is tagged or uploaded.

    make release                      # dist/notes.md, and the commands that remain

The notes are the part of the changelog about the version, by theme.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.hashed_requirements import ROOT


def versions(root: Path) -> dict[str, str]:
    """The version that each file states."""
    found = {"pyproject.toml": tomllib.loads(_text(root, "pyproject.toml"))["project"]["version"]}
    for name, pattern in {
        "graphgen/version.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## (?:Unreleased \()?(\d+\.\d+\.\d+)\)?",
    }.items():
        match = re.search(pattern, _text(root, name), re.MULTILINE)
        found[name] = match[1].strip('"') if match else "none"
    return found


def notes(root: Path) -> str:
    """The newest part of the changelog, with the links of the repository as they are."""
    _, _, rest = _text(root, "CHANGELOG.md").partition("\n## ")
    head, _, body = rest.partition("\n")
    version = re.sub(r"Unreleased \((.+)\)", r"\1", head)
    return f"# graphgen {version}\n{body.partition(f'{chr(10)}## ')[0]}".rstrip() + "\n"


def obstacles(root: Path) -> Iterator[str]:
    """What has to be mended before a release."""
    stated = versions(root)
    version = stated["pyproject.toml"]
    yield from (f"{name} states {v}, not {version}" for name, v in stated.items() if v != version)
    if f"\n## Unreleased ({version})" in _text(root, "CHANGELOG.md"):
        yield f"CHANGELOG.md: replace 'Unreleased ({version})' by '{version}, ' and the date"
    if not re.search(r"^### ", notes(root), re.MULTILINE):
        yield "CHANGELOG.md: the version has no themes"
    if _git(root, "status", "--porcelain"):
        yield "there are changes that are not committed"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"there is a tag v{version}"


def _text(root: Path, name: str) -> str:
    return (root / name).read_text("utf-8")


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(root: Path = ROOT) -> int:
    """Print what is missing or, if nothing is, what remains to be done; returns the exit code."""
    (root / "dist").mkdir(exist_ok=True)
    (root / "dist" / "notes.md").write_text(notes(root), "utf-8")
    found = list(obstacles(root))
    version = versions(root)["pyproject.toml"]
    print(f"wrote dist/notes.md about {version}")
    if found:
        print(*(f"not yet: {text}" for text in found), sep="\n")
        return 1
    print("nothing was tagged or uploaded; what remains:")
    print(f"  .ci/run && make slow wheels\n  git tag -a v{version} -F dist/notes.md")
    print(f"  git push origin v{version}\n  .cache/tools/bin/twine upload dist/*.whl dist/*.tar.gz")
    return 0


if __name__ == "__main__":
    sys.exit(main())
