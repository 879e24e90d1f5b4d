"""``graphgen pipeline``: which pipelines have a name, and which passes one is made of."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, table, write_json, write_stdout
from graphgen.cli.pass_list import levels_text, options_json, options_table, pasteable

if TYPE_CHECKING:
    from graphgen.passes.core import Pass
    from graphgen.passes.core.named import NamedPipeline


def pipeline(
    text: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE]", help="A name or a list of passes; none lists names."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="The passes it is made of, with all their options.")
    ] = False,
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the pipelines, explain one, or show pass by pass what one is made of.

    The order is checked: levels and facts a pass needs must come about before it.

    \b
    Examples:
      graphgen pipeline
      graphgen pipeline default
      graphgen pipeline 'default{tp=2}' --show
      graphgen pipeline 'canonicalize,specialize,legalize' --show --json
    """
    from graphgen.passes.core.plugins import load_file
    from graphgen.passes.core.registry import all_pipelines, find_pipeline
    from graphgen.passes.pipelines import parse

    known = all_pipelines()
    for path in plugin or []:
        load_file(path)
    if text is None:
        _list(known, as_json)
    elif show or text not in known:
        _show(parse(text), as_json)
    elif as_json:
        write_json(_facts(find_pipeline(text)))
    else:
        write_stdout(_page(find_pipeline(text)))


def _list(known: Mapping[str, type[NamedPipeline]], as_json: bool) -> None:
    from graphgen.passes.core.page import page_of

    if as_json:
        write_json([_facts(known[name]) for name in sorted(known)])
    else:
        rows = [[name, page_of(known[name]).summary] for name in sorted(known)]
        write_stdout(table(["pipeline", "what it does"], rows, sys.stdout))


def _facts(item: type[NamedPipeline]) -> dict[str, Json]:
    from graphgen.passes.core.page import page_of

    page = page_of(item)
    return {
        "name": item.name,
        "summary": page.summary,
        "doc": page.text,
        "options": options_json(item),
        "passes": [str(each) for each in item().passes()],
    }


def _page(item: type[NamedPipeline]) -> str:
    from graphgen.passes.core.page import page_of

    made = "\n".join(f"  {each}" for each in item().passes())
    head = f"{pasteable(item.name, item)}\n\n{page_of(item).text}\n{options_table(item)}"
    return f"{head}\nPasses, for these options:\n{made}\n"


def _show(passes: Sequence[Pass], as_json: bool) -> None:
    if as_json:
        write_json([_pass_json(item) for item in passes])
        return
    rows = [
        [
            str(number),
            str(item),
            levels_text(item.input_stages, item.output_stage),
            " ".join(item.requires),
            " ".join([*item.provides, *[f"not {name}" for name in item.invalidates]]),
        ]
        for number, item in enumerate(passes, 1)
    ]
    write_stdout(table(["", "pass", "level", "requires", "provides"], rows, sys.stdout))


def _pass_json(item: Pass) -> dict[str, Json]:
    from graphgen.passes.core.options import format_option

    return {
        "pass": str(item),
        "name": item.name,
        "options": {key: format_option(value) for key, value in vars(item).items()},
        "takes": list(item.input_stages),
        "gives": item.output_stage or None,
        "requires": list(item.requires),
        "provides": list(item.provides),
        "invalidates": list(item.invalidates),
        "rounding": item.budget,
    }
