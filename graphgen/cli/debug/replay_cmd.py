"""``graphgen replay``: compare the lowered programs of all models with another revision's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from graphgen.cli.console import Json, colored, note, paint_diff, write_json, write_stdout
from graphgen.errors import GraphgenError

ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("graphgen", "passes", "lowering", "runtime")
# The newest name first; zoo.py printed StableHLO only.
_PROGRAMS = ("lowering/regression.py", "lowering/zoo.py")


def replay(
    since: Annotated[
        str, typer.Option("--since", metavar="REVISION", help="Of git; the base of the comparison.")
    ] = "HEAD",
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Only this model; repeat.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few models that reach every form; seconds.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", min=0, help="How much of the first difference to show.")
    ] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the lowered programs of all models with those of a git revision.

    Run this after a refactoring. The revision and the working tree each lower the mini twins of all
    known models, on 1 to 4 ranks, for cpu, trn1 and trn2. Compared are StableHLO without locations,
    HLO protobufs without metadata, the weight programs and the compile cache keys. Exit status 1
    when any differs. Needs a checkout of graphgen and takes about two minutes.

    \b
    Examples:
      graphgen replay
      graphgen replay --since main --model llama-3.1-8b --lines 60
      graphgen replay --quick
    """
    models = model or []
    _check_models(models)
    arguments = [*models, "--quick"] if quick else models
    before = _texts_of_revision(since, arguments)
    after = _texts(ROOT, arguments)
    if quick:
        cases = {key.partition(" @")[0] for key in after}
        before = {key: text for key, text in before.items() if key.partition(" @")[0] in cases}
    changed = [key for key in before if key in after and before[key] != after[key]]
    # A new model cannot differ, nor can a form that the revision's own program does not print.
    gone = [key for key in before if key not in after]
    new = [key for key in after if key not in before]
    if as_json:
        write_json({"since": since, "texts": len(after), **_lists(changed, gone, new)})
    else:
        write_stdout(_text(since, before, after, (changed, gone, new), lines))
    if changed or gone:
        raise typer.Exit(1)


def _lists(changed: list[str], gone: list[str], new: list[str]) -> dict[str, Json]:
    return {"changed": changed, "gone": gone, "new": new}


def _check_models(models: Sequence[str]) -> None:
    from graphgen.models import known_shape

    for name in models:
        known_shape(name)


def _texts_of_revision(since: str, arguments: Sequence[str]) -> Mapping[str, str]:
    """The snapshots of a revision."""
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
        return _texts(Path(folder), arguments)


def _texts(root: Path, arguments: Sequence[str]) -> Mapping[str, str]:
    """The snapshots that the packages in a folder make, in a process of their own.

    Each revision runs its own snapshot program: this one's would not find the modules of another.
    """
    program = next((path for name in _PROGRAMS if (path := root / name).is_file()), None)
    if program is None:
        raise GraphgenError("GG0705", f"the packages in {root} have no {_PROGRAMS[0]}")
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    # -P: the program's own folder would come first on the path.
    old = program.name == "zoo.py"
    command = [
        sys.executable,
        "-P",
        str(program),
        *(a for a in arguments if not (old and a[0] == "-")),
    ]
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


def _text(
    since: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    found: tuple[list[str], list[str], list[str]],
    lines: int,
) -> str:
    changed, gone, new = found
    if new:
        note(f"{len(new)} texts are new")
    if not changed and not gone:
        return f"{len(after)} lowered texts are as at {since}\n"
    out = [f"{len(changed)} of {len(after)} lowered texts differ from {since}"]
    out += [f"  {key}: {_count(before[key])} -> {_count(after[key])}" for key in changed]
    out += [f"  {key}: there is none now" for key in gone]
    if changed and lines:
        key = changed[0]
        pair = before[key].splitlines(), after[key].splitlines()
        diff = unified_diff(*pair, f"{key} at {since}", key, lineterm="", n=2)
        text = "\n".join(islice(diff, lines))
        out.append(paint_diff(text) if colored(sys.stdout) else text)
    return "\n".join([*out, ""])


def _count(text: str) -> str:
    """The number of ops of a text; the first line of a digest, a key or a refusal."""
    ops = sum(" = " in line for line in text.splitlines())
    return f"{ops} ops" if ops else text.partition("\n")[0]
