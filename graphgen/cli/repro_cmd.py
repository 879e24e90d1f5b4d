"""``graphgen repro``: rerun a failed pass from its reproducer folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.shared_options import AsJson, Plugins, load_plugins
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.passes.validate.reproducer import Replay

COMMAND: Final = Command("debug", "Replay a pass that failed.")


def repro(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder that a failing pass wrote.")
    ],
    plugin: Plugins = None,
    as_json: AsJson = False,
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
    from graphgen.lowering.plugin_file import check_plugins_named
    from graphgen.passes.core.registry import parse_pipeline
    from graphgen.passes.inspect.result_json import replay_json
    from graphgen.passes.validate.reproducer import replay

    loaded = load_plugins(plugin)
    found = replay(folder)
    if loaded:
        recorded = found.recorded.pipeline
        check_plugins_named(loaded, recorded, parse_pipeline(recorded), "a folder of ")
    for name, then, now in found.differences:
        note(f"{name} was {then} and is {now}")
    emit(as_json, lambda: replay_json(found), lambda: _text(found))
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
