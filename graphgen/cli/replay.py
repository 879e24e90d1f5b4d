"""``graphgen replay``: is the lowered form of every model what it was at another revision?"""

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

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("graphgen", "passes", "lowering", "runtime")


def replay(
    since: Annotated[
        str, typer.Option("--since", metavar="REVISION", help="Of git; the base of the comparison.")
    ] = "HEAD",
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Only this model; repeat.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", min=0, help="How much of the first difference to show.")
    ] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the StableHLO of all models with what a git revision makes of them.

    For a change that should change nothing: the twins of all known models are lowered by the
    revision and by what is here, on one and two ranks, for the CPU and an accelerator. Exit status
    1 when any program differs. Works in a checkout of graphgen.

    \b
    Examples:
      graphgen replay
      graphgen replay --since main --model llama-3.1-8b --lines 60
    """
    models = model or []
    _check_models(models)
    before = _texts_of_revision(since, models)
    after = _texts(ROOT, models)
    changed = [key for key in before if key in after and before[key] != after[key]]
    # A model that is new has nothing it could differ from.
    gone = [key for key in before if key not in after]
    new = [key for key in after if key not in before]
    if as_json:
        write_json({"since": since, "programs": len(after), **_lists(changed, gone, new)})
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


def _texts_of_revision(since: str, models: Sequence[str]) -> Mapping[str, str]:
    """What the packages of a revision make of the models."""
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
        return _texts(Path(folder), models)


def _texts(root: Path, models: Sequence[str]) -> Mapping[str, str]:
    """What the packages in a folder make of the models, asked by a process of their own."""
    program = ROOT / "lowering" / "zoo.py"
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    # Not as a script: its folder would come first on the path.
    code = f"exec(compile(open({str(program)!r}).read(), 'zoo.py', 'exec'))"
    command = [sys.executable, "-c", code, *models]
    ran = subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        last = ran.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        raise GraphgenError("GG0705", f"the packages in {root} do not lower: {last[0]}")
    found: Mapping[str, str] = json.loads(ran.stdout)
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
        note(f"{len(new)} programs are new")
    if not changed and not gone:
        return f"{len(after)} programs are as at {since}\n"
    out = [f"{len(changed)} of {len(after)} programs differ from {since}"]
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
    """How many ops there are, or why there are none."""
    return text if text.startswith("refused") else f"{text.count(' = stablehlo.')} ops"
