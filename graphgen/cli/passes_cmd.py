"""``graphgen passes``: a list of the passes, or the page of one."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.shared_options import AsJson, Plugins, load_plugins

COMMAND: Final = Command("passes", "List the passes, or explain one.")


def passes(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The pass to explain; none lists all.")
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the passes, or explain one: what it does, its options, a module before and after.

    The name of a pipeline, such as default, is explained as 'graphgen pipeline' does.

    \b
    Examples:
      graphgen passes
      graphgen passes specialize
      graphgen passes my-pass --plugin my_pass.py --json
    """
    from graphgen.passes.core.registry import all_passes, all_pipelines, find_pass, find_pipeline
    from graphgen.passes.inspect.catalog import (
        pass_json,
        pass_page,
        pass_table,
        pipeline_json,
        pipeline_page,
    )

    load_plugins(plugin)
    known = all_passes()
    if name is not None and name not in known and name in all_pipelines():
        made = find_pipeline(name)
        emit(as_json, lambda: pipeline_json(made), lambda: pipeline_page(made))
    elif name is not None:
        item = find_pass(name)
        emit(as_json, lambda: pass_json(item), lambda: pass_page(item))
    else:
        everything = [known[key] for key in sorted(known)]
        emit(as_json, lambda: [pass_json(item) for item in everything], lambda: pass_table(known))
