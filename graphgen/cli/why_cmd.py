"""``graphgen why``: history of one value, from its source line to the lowered op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import ModuleFile, PipelineOption, Plugins, load_pipeline

if TYPE_CHECKING:
    from graphgen.passes.inspect.history import Event, History
    from graphgen.passes.inspect.recording import Recording
    from graphgen.passes.inspect.result_json import LoweredLines as Lines

COMMAND: Final = Command("passes", "Show one value's history through the passes.")


def why(
    file: ModuleFile,
    value: Annotated[
        str, typer.Argument(metavar="%VALUE", help="A value of the module, or of its lowered form.")
    ],
    pipeline: PipelineOption = "default",
    lowered: Annotated[
        bool,
        typer.Option(
            "--lowered", help="The value is one after the passes, or a line of the StableHLO."
        ),
    ] = False,
    program: Annotated[
        str, typer.Option("--program", metavar="NAME", help="The program the value is in.")
    ] = "",
    plugin: Plugins = None,
    most: Annotated[
        int, typer.Option("--most", min=1, help="Number of ops to show for each place.")
    ] = 6,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all ops.")] = False,
) -> None:
    """Show one value's history: its source line, its rewrites, and its lowered ops.

    With --lowered the value is one of the module after the passes, which has the same name in the
    StableHLO of its program; or the one on a line of that text.

    \b
    Examples:
      graphgen why mini.gg %13 --program decode
      graphgen why mini.gg %57 --lowered --program decode.b1.c128 -p 'default{tp=2}'
      graphgen why mini.gg 120 --lowered --program decode.b1.c128 --json
    """
    from graphgen.lowering.stablehlo import stablehlo_places
    from graphgen.passes.inspect.history import backward, find_value, forward
    from graphgen.passes.inspect.lowered_value import find_lowered
    from graphgen.passes.inspect.recording import record
    from graphgen.passes.inspect.result_json import history_json

    passes = load_pipeline(pipeline, plugin)
    program = program.removeprefix("@")
    module = read_module(file)
    if program and not lowered:
        module.function(program)
    recording = record(module, passes)
    lines = stablehlo_places(recording.module)
    if lowered:
        found = backward(recording, find_lowered(recording.module, lines, value, program))
    else:
        found = forward(recording, find_value(recording.start, value, program))
    emit(
        as_json,
        lambda: history_json(found, recording, lines),
        lambda: _text(found, recording, lines, most),
    )


def _text(found: History, recording: Recording, lines: Lines, most: int) -> str:
    out: list[str] = []
    for home, text in found.origins[:most]:
        out.append(f"@{home}  {text}")
    if len(found.origins) > most:
        out.append(f"... and {len(found.origins) - most} more values (--most)")
    if not found.origins:
        out.append("no value of the module: a pass made it for the module as a whole")
    elif found.loc.line:
        out.append(f"  written at {found.loc!r}")
    for event in found.events:
        out += _event(event, most)
    out += _now(found, recording, lines, most)
    return "\n".join([*out, ""])


def _event(event: Event, most: int) -> list[str]:
    number = f" #{event.number}" if event.number else ""
    head = f"{event.label}{number}: {event.what} in @{event.function}"
    if event.relation is not None:
        head += f", as {event.relation}"
    out = [head + (f"  ({event.source})" if event.source else "")]
    for sign, texts in (("-", event.before), ("+", event.after)):
        out += [f"  {sign} {text}" for text in texts[:most]]
        if len(texts) > most:
            out.append(f"  {sign} ... {len(texts) - most} more")
    return out


def _now(found: History, recording: Recording, lines: Lines, most: int) -> list[str]:
    module = recording.module
    if not found.now and not found.inside:
        return ["nothing is left of it"]
    if not lines:
        names = ", ".join(recording.end.names[value] for value in found.now[:most])
        return [
            f"at the end, level {module.level}: {names}; nothing is lowered before level target"
        ]
    out: list[str] = []
    for title, values in (("lowered to", found.now), ("made for it", found.inside)):
        placed = [lines[v.op] for v in values if v.op is not None and v.op in lines]
        for home in dict.fromkeys(home for home, _, _ in placed):
            here = [(number, text) for name, number, text in placed if name == home]
            out.append(f"{title}, StableHLO of @{home}:")
            out += [f"  line {number}: {_first_line(text)}" for number, text in here[:most]]
            if len(here) > most:
                out.append(f"  ... {len(here) - most} more")
    weights = [value for value in [*found.now, *found.inside] if value.op not in lines]
    if weights:
        places = recording.end.places()
        shown = [f"@{places[v][0]} {recording.end.names[v]}" for v in weights[:most]]
        out.append(f"prepared, or an argument: {', '.join(shown)}")
    return out


def _first_line(text: str) -> str:
    head, _, more = text.partition("\n")
    return f"{head} ..." if more else head
