"""Differences between the lowered programs of the working tree and of a git revision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import graphgen
from graphgen.errors import GraphgenError
from graphgen.models import known_shape

ROOT = Path(graphgen.__file__).resolve().parents[1]
_PACKAGES = ("graphgen", "passes", "lowering", "runtime")
# The newest name first; zoo.py printed StableHLO only.
_PROGRAMS = ("lowering/regression.py", "lowering/zoo.py")


@dataclass(frozen=True, slots=True)
class RevisionDiff:
    """Snapshots of :mod:`graphgen.lowering.regression` by two revisions, by the name of the text.

    Attributes:
        before: of the revision.
        after: of the working tree.
    """

    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def changed(self) -> list[str]:
        """Texts of both that differ."""
        return [
            key for key in self.before if self.after.get(key, self.before[key]) != self.before[key]
        ]

    @property
    def gone(self) -> list[str]:
        """Texts of the revision only."""
        return [key for key in self.before if key not in self.after]

    @property
    def new(self) -> list[str]:
        """Texts of the working tree only, such as those of a new model."""
        return [key for key in self.after if key not in self.before]


def diff_revision(since: str, models: Sequence[str], *, quick: bool = False) -> RevisionDiff:
    """Lower known models with the packages of a revision and with those of the working tree.

    Args:
        since: a git revision.
        models: names of known models; all of them if empty.
        quick: a few models only that reach every form.

    Raises:
        GraphgenError: GG0504 an unknown model; GG0705 git cannot be run, the revision is unknown,
            or its packages do not lower.
    """
    for name in models:
        known_shape(name)
    arguments = [*models, "--quick"] if quick else list(models)
    before = _snapshots_of_revision(since, arguments)
    after = _snapshots(ROOT, arguments)
    if quick:
        cases = {key.partition(" @")[0] for key in after}
        before = {key: text for key, text in before.items() if key.partition(" @")[0] in cases}
    return RevisionDiff(before, after)


def _snapshots_of_revision(since: str, arguments: Sequence[str]) -> Mapping[str, str]:
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", since, "--", *_PACKAGES]
    try:
        packed = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise GraphgenError("GG0705", f"git cannot be run: {error.strerror}") from error
    if packed.returncode:
        reason = packed.stderr.decode(errors="replace").strip()
        raise GraphgenError(
            "GG0705", f"--since {since}: {reason}", help="name a revision of this checkout"
        )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        return _snapshots(Path(folder), arguments)


def _snapshots(root: Path, arguments: Sequence[str]) -> Mapping[str, str]:
    """The snapshots that the packages in a folder make, in a process of their own.

    Each revision runs its own snapshot program: this one's would not find the modules of another.
    """
    program = next((path for name in _PROGRAMS if (path := root / name).is_file()), None)
    if program is None:
        raise GraphgenError("GG0705", f"the packages in {root} have no {_PROGRAMS[0]}")
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    old = program.name == "zoo.py"
    known = [a for a in arguments if not (old and a[0] == "-")]
    # -P: the program's own folder would come first on the path.
    command = [sys.executable, "-P", str(program), *known]
    ran = subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        last = ran.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        raise GraphgenError("GG0705", f"the packages in {root} do not lower: {last[0]}")
    found: Mapping[str, str] = json.loads(ran.stdout)
    if old:
        return {f"{key} stablehlo" if "@" in key else key: text for key, text in found.items()}
    return found
