"""``graphgen replay``: compare the lowered programs of all models with another revision's."""

from __future__ import annotations

import sys
from difflib import unified_diff
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import colored, emit, note, paint_diff
from graphgen.cli.shared_options import AsJson

if TYPE_CHECKING:
    from graphgen.lowering.revision_diff import RevisionDiff

COMMAND: Final = Command("debug", "Compare lowered models with a git revision's.")


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
        int, typer.Option("--lines", min=0, help="Largest part of the first difference to show.")
    ] = 30,
    as_json: AsJson = False,
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
    from graphgen.lowering.revision_diff import diff_revision

    found = diff_revision(since, model or [], quick=quick)
    lists = {"changed": found.changed, "gone": found.gone, "new": found.new}
    emit(
        as_json,
        lambda: {"since": since, "texts": len(found.after), **lists},
        lambda: _text(since, found, lines),
    )
    if found.changed or found.gone:
        raise typer.Exit(1)


def _text(since: str, found: RevisionDiff, lines: int) -> str:
    before, after, changed, gone = found.before, found.after, found.changed, found.gone
    if found.new:
        note(f"{len(found.new)} texts are new")
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
