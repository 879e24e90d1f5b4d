"""``graphgen why``: one value's history, from the user's line to the lowered op and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, write_json, write_stdout
from graphgen.cli.passes.trace_cmd import stablehlo_places
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.ir import Op, Value
    from graphgen.passes.debug.history import Event, History
    from graphgen.passes.debug.recording import Recording

    # For an op of the module at the end: program, line in its StableHLO, text.
    Lines = Mapping[Op, tuple[str, int, str]]


def why(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A module; - is standard input.")],
    value: Annotated[
        str, typer.Argument(metavar="%VALUE", help="A value of the module, or of its lowered form.")
    ],
    pipeline: Annotated[
        str, typer.Option("-p", "--pipeline", metavar="PIPELINE", help="Passes; 'default' too.")
    ] = "default",
    lowered: Annotated[
        bool,
        typer.Option(
            "--lowered", help="The value is one after the passes, or a line of the StableHLO."
        ),
    ] = False,
    program: Annotated[
        str, typer.Option("--program", metavar="NAME", help="The program the value is in.")
    ] = "",
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many ops to show a place.")] = 6,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all ops.")] = False,
) -> None:
    """Tell one value's history: where it was written, what replaced it, what it is lowered to.

    With --lowered the history is told of a value of the module as it is after the passes, which has
    the same name in the StableHLO of its program; or of what stands on a line of that text.

    \b
    Examples:
      graphgen why mini.gg %13 --program decode
      graphgen why mini.gg %57 --lowered --program decode.b1.c128 -p 'default{tp=2}'
      graphgen why mini.gg 120 --lowered --program decode.b1.c128 --json
    """
    from graphgen.cli.module_file import read_module
    from graphgen.cli.pass_list import load_passes
    from graphgen.passes.core.plugins import load_file
    from graphgen.passes.debug.history import backward, find_value, forward
    from graphgen.passes.debug.recording import record
    from graphgen.passes.pipelines import parse

    load_passes()
    for path in plugin or []:
        load_file(path)
    program = program.removeprefix("@")
    module = read_module(file)
    if program and not lowered:
        module.function(program)
    recording = record(module, parse(pipeline))
    lines = stablehlo_places(recording.module)
    if lowered:
        found = backward(recording, _lowered_value(recording, lines, value, program))
    else:
        found = forward(recording, find_value(recording.start, value, program))
    if as_json:
        write_json(_json(found, recording, lines))
    else:
        write_stdout(_text(found, recording, lines, most))


def _lowered_value(recording: Recording, lines: Lines, text: str, program: str) -> Value:
    """The value called ``%name`` after the passes, or made on a line of the StableHLO."""
    from graphgen.text.printer import value_names

    functions = recording.module.functions
    if program and program not in functions:
        recording.module.function(program)
    homes = [name for name in functions if program in ("", name)]
    if text.isdecimal():
        found = [
            op.results[0]
            for op, (home, line, _) in lines.items()
            if line == int(text) and home in homes
        ]
    else:
        wanted = f"%{text.removeprefix('%')}"
        named = [value_names(functions[home]) for home in homes]
        found = [value for names in named for value, name in names.items() if name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        what, help = f"'{text}' is in {len(found)} functions", "choose one with --program"
    else:
        what = f"nothing is called, or stands on, '{text}' after the passes"
        help = "graphgen lower prints a program with the names and lines that are meant here"
    named_functions = ", ".join(f"@{name}" for name in functions)
    raise GraphgenError("GG0705", what, note=f"functions: {named_functions}", help=help)


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


def _json(found: History, recording: Recording, lines: Lines) -> dict[str, Json]:
    return {
        "origins": [{"function": home, "text": text} for home, text in found.origins],
        "where": repr(found.loc),
        "events": [
            {
                "pass": event.label,
                "function": event.function,
                "what": event.what,
                "number": event.number or None,
                "rule_at": event.source or None,
                "relation": str(event.relation) if event.relation is not None else None,
                "before": list(event.before),
                "after": list(event.after),
            }
            for event in found.events
        ],
        "now": [_place(value, recording, lines) for value in found.now],
        "made_for_it": [_place(value, recording, lines) for value in found.inside],
    }


def _place(value: Value, recording: Recording, lines: Lines) -> dict[str, Json]:
    home, line, text = lines.get(value.op, ("", 0, "")) if value.op is not None else ("", 0, "")
    return {
        "value": recording.end.names[value],
        "function": home or None,
        "line": line or None,
        "stablehlo": text or None,
    }
