"""``graphgen passes``: which passes there are, and what one does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, table, write_json, write_stdout
from graphgen.cli.pass_list import load_passes, options_of, page_of, summary_of

if TYPE_CHECKING:
    from passes.core import Pass


def passes(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The pass to explain; none lists all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the passes, or explain one: what it does, its options, a module before and after.

    \b
    Examples:
      graphgen passes
      graphgen passes specialize
      graphgen passes --json
    """
    if name is not None:
        from passes.core import find_pass

        item = find_pass(name)
        if as_json:
            write_json(_facts(item))
        else:
            write_stdout(_page(item))
        return
    known = load_passes()
    if as_json:
        write_json([_facts(known[key]) for key in sorted(known)])
    else:
        rows = [[key, _levels(known[key]), summary_of(known[key])] for key in sorted(known)]
        write_stdout(table(["pass", "level", "what it does"], rows, sys.stdout))


def _facts(item: type[Pass]) -> dict[str, Json]:
    return {
        "name": item.name,
        "summary": summary_of(item),
        "takes": list(item.takes),
        "gives": item.gives or None,
        "options": [
            {"name": key, "type": kind, "default": default}
            for key, (kind, default) in options_of(item).items()
        ],
        "doc": page_of(item),
    }


def _levels(item: type[Pass]) -> str:
    return f"-> {item.gives}" if item.gives else ""


def _page(item: type[Pass]) -> str:
    options = ",".join(f"{key}={default}" for key, (_, default) in options_of(item).items())
    head = f"{item.name}{{{options}}}" if options else item.name
    levels = f"Takes a module at level {', '.join(item.takes)}"
    levels += f"; gives level {item.gives}." if item.gives else "; leaves the level as it is."
    return f"{head}\n\n{page_of(item)}\n\n{levels}\n"
