"""``graphgen repro``: let a pass fail again, from the folder it left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, note, write_json, write_stdout
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.passes.debug.reproducer import Replay


def repro(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="What a failing pass has left behind.")
    ],
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replay a pass that failed. Exit status 1 if it fails, in whatever way; 0 if it does not.

    Every pass that fails, or leaves a module that is not well formed, writes a folder with the
    module, the pass and its options, the plugins and the versions; the error ends with this
    command. The folder may be copied anywhere. GRAPHGEN_CRASH names where such folders go, by
    default the folder for temporary files; 'off' writes none.

    \b
    Examples:
      graphgen repro graphgen-crash-1f3a5b7c9d
      graphgen repro graphgen-crash-1f3a5b7c9d --json
    """
    from graphgen.cli.pass_list import load_passes
    from graphgen.passes.core.plugins import load_file
    from graphgen.passes.debug.reproducer import replay

    load_passes()
    for path in plugin or []:
        load_file(path)
    found = replay(folder)
    for name, then, now in found.differences:
        note(f"{name} was {then} and is {now}")
    if as_json:
        write_json(_json(found))
    else:
        write_stdout(_text(found))
    if found.now is not None:
        raise typer.Exit(1)


def _text(found: Replay) -> str:
    recorded = found.recorded
    lines = [f"{recorded.pipeline} on repro.gg"]
    if found.now is None:
        lines.append(f"does not fail any more; it was {recorded.failure}")
    elif found.same:
        lines.append("fails as it did:")
    else:
        lines.append(f"fails in another way; it was {recorded.failure}")
    if isinstance(found.error, GraphgenError):
        lines.append(str(found.error))
    elif found.error is not None:
        from traceback import format_exception

        lines.append("".join(format_exception(found.error)).rstrip())
    return "\n".join([*lines, ""])


def _json(found: Replay) -> dict[str, Json]:
    recorded, now = found.recorded, found.now
    return {
        "pipeline": recorded.pipeline,
        "pass": recorded.failed,
        "whole_pipeline": recorded.whole,
        "fails": now is not None,
        "same": found.same,
        "recorded": _failure(recorded.failure.type, recorded.failure.code, recorded.failure.what),
        "now": _failure(now.type, now.code, now.what) if now is not None else None,
        "versions": {name: [then, now] for name, then, now in found.differences},
    }


def _failure(type: str, code: str, what: str) -> dict[str, Json]:
    return {"type": type, "code": code or None, "what": what}
