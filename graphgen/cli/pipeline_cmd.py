"""``graphgen pipeline``: a list of the named pipelines, or the passes of one."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.shared_options import AsJson, Plugins, load_plugins

COMMAND: Final = Command("passes", "List the pipelines, or show what one is made of.")


def pipeline(
    text: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE]", help="A name or a list of passes; none lists names."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="The passes it is made of, with all their options.")
    ] = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
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
    from graphgen.lowering.plugin_file import check_plugins_named
    from graphgen.passes.core.registry import all_pipelines, find_pipeline
    from graphgen.passes.inspect import catalog
    from graphgen.passes.pipelines import parse_in_phases, passes_of

    loaded = load_plugins(plugin)
    known = all_pipelines()
    if text is not None:
        check_plugins_named(loaded, text, passes_of(parse_in_phases(text)), "")
    if text is None:
        everything = [known[name] for name in sorted(known)]
        emit(
            as_json,
            lambda: [catalog.pipeline_json(item) for item in everything],
            lambda: catalog.pipeline_table(known),
        )
    elif show or text not in known:
        phases = parse_in_phases(text)
        emit(as_json, lambda: catalog.sequence_json(phases), lambda: catalog.sequence_table(phases))
    else:
        item = find_pipeline(text)
        emit(as_json, lambda: catalog.pipeline_json(item), lambda: catalog.pipeline_page(item))
