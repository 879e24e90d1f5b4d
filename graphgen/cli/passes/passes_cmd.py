"""``graphgen passes``: which passes there are, and what one does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from graphgen.cli.console import Json, table, write_json, write_stdout
from graphgen.cli.pass_list import (
    levels_text,
    load_passes,
    options_json,
    options_table,
    pasteable,
    rounding_text,
)

if TYPE_CHECKING:
    from graphgen.passes.core import Pass


def passes(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The pass to explain; none lists all.")
    ] = None,
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the passes, or explain one: what it does, its options, a module before and after.

    \b
    Examples:
      graphgen passes
      graphgen passes specialize
      graphgen passes my-pass --plugin my_pass.py --json
    """
    from graphgen.passes.core.page import page_of
    from graphgen.passes.core.plugins import load_file
    from graphgen.passes.core.registry import find_pass

    known = load_passes()
    for path in plugin or []:
        load_file(path)
    if name is not None:
        item = find_pass(name)
        if as_json:
            write_json(_facts(item))
        else:
            write_stdout(_page(item))
    elif as_json:
        write_json([_facts(known[key]) for key in sorted(known)])
    else:
        rows = [
            [key, f"-> {item.output_stage}" if item.output_stage else "", page_of(item).summary]
            for key, item in sorted(known.items())
        ]
        write_stdout(table(["pass", "level", "what it does"], rows, sys.stdout))


def _facts(item: type[Pass]) -> dict[str, Json]:
    from graphgen.passes.core.page import page_of

    page = page_of(item)
    return {
        "name": item.name,
        "summary": page.summary,
        "doc": page.text,
        "options": options_json(item),
        "takes": list(item.input_stages),
        "gives": item.output_stage or None,
        "requires": list(item.requires),
        "provides": list(item.provides),
        "invalidates": list(item.invalidates),
        "rounding": _rounding(item),
        "given": page.given,
        "result": page.result,
        "result_of": page.passes or [item.name],
    }


def _rounding(item: type[Pass]) -> float | None:
    # A pass may compute its promise from its options: then the class alone does not know it.
    value = cast(object, item.rounding)
    return value if isinstance(value, float | int) else None


def _page(item: type[Pass]) -> str:
    from graphgen.passes.core.facts import FACTS
    from graphgen.passes.core.page import page_of

    page = page_of(item)
    rounding = _rounding(item)
    rows = [
        ["Level:", levels_text(item.input_stages, item.output_stage)],
        *[["Requires:", f"{name}: {FACTS[name].doc}"] for name in item.requires],
        *[["Provides:", f"{name}: {FACTS[name].doc}"] for name in item.provides],
        *[["Takes away:", f"{name}: {FACTS[name].doc}"] for name in item.invalidates],
        ["Rounding:", "by its options" if rounding is None else rounding_text(rounding)],
    ]
    # One heading for several lines of a kind.
    for above, row in zip(reversed(rows[:-1]), reversed(rows[1:]), strict=True):
        row[0] = "" if row[0] == above[0] else row[0]
    width = max(len(row[0]) for row in rows) + 2
    contract = "\n".join(f"{row[0]:{width}}{row[1]}" for row in rows)
    how = f" ({page.how})" if page.how else ""
    example = f"\nGiven:\n{_indented(page.given)}\n\nResult{how}:\n{_indented(page.result)}\n"
    text = f"{pasteable(item.name, item)}\n\n{page.text}\n{options_table(item)}\n{contract}\n"
    return text + (example if page.given else "")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
