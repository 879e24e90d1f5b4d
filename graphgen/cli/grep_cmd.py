"""``graphgen grep``: matches of a pattern of ops in a module."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import note, write_json, write_report
from graphgen.cli.module_file import programs_or_functions, read_module
from graphgen.cli.shared_options import AsJson, ModuleFile, OnlyProgram
from graphgen.ir import Module, Value
from graphgen.report.table import Table
from graphgen.report.units import folded, groups, short
from graphgen.text.printer import value_names

if TYPE_CHECKING:
    from graphgen.pattern import Match
    from graphgen.report.grep import Hit

COMMAND: Final = Command("inspect", "Find ops by a pattern.", error_status=2)


def grep(
    file: ModuleFile,
    wanted: Annotated[
        str, typer.Argument(metavar="PATTERN", help="The pattern to search for; see below.")
    ],
    program: OnlyProgram = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every match; identical layers are not folded.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find ops by what they are, what they read and who reads them.

    The bodies of loops, branches and fusions are searched too: %w.body/%dot is in the body of the
    loop %w.

    Exit status 0 with a match, 1 without one, 2 on an error.

    \b
    Patterns:
      dot_general                       an op by name, in the IR's or HLO's spelling; * ? and | too
      dot_general(_, param)             by operands: _ is anything, param an argument; input, weight
                                        and cache are kinds of arguments; const; %name; a nested op
      add($x, $x)   concatenate(_, ...) the same value twice; any more operands
      a -> b -> return                  b reads what a makes, and it is an output
      reduce{kind=add bytes>=1MB}       conditions: attributes, and bytes, uses, rank, name, layer,
                                        scope, file, line; = != < <= > >=
      convert : bf16[*,64]              by the type of the first result

    \b
    Examples:
      graphgen grep decode.pb 'dot_general(_, param) -> reshape -> transpose'
      graphgen grep decode.pb 'custom_call{target=AwsNeuron*}'
      graphgen grep decode.pb 'transpose(weight){bytes>1MB}' --all
      graphgen grep decode.pb '_{uses=0}' --json
    """
    from graphgen.pattern import parse_pattern
    from graphgen.report.grep import grep as search
    from graphgen.report.grep import unknown_names

    chain = parse_pattern(wanted)
    module = read_module(file)
    found = search(module, programs_or_functions(module, program), chain)
    _note_opaque(module, wanted)
    if as_json:
        write_json([hit.to_json() for hit in found])
    elif found:
        write_report(_table(found, show_all=show_all))
    else:
        note("no match")
        for name, near in unknown_names(module, wanted):
            note(f"no op is called {name}" + (f"; there is {', '.join(near)}" if near else ""))
    if not found:
        raise typer.Exit(1)


def _note_opaque(module: Module, wanted: str) -> None:
    """Note the ops of these names in computations that opaque instructions keep as bytes."""
    from graphgen.lowering.hlo.subcomputations import opcodes

    names = set(re.findall(r"[a-z][\w-]*", wanted.replace("-", "_")))
    for op in [op for function in module.functions.values() for op in function.block]:
        regions = op.attrs.text("regions") if op.name == "hlo.opaque" else ""
        for code, count in (opcodes(regions) if regions else {}).items():
            if code.replace("-", "_") in names:
                caller = op.attrs.text("opcode")
                note(f"{count} {code} in the computations that {caller} calls: not searched")


def _table(found: Sequence[Hit], *, show_all: bool) -> Table:
    """One row per match, or one for those that differ in numbers only."""
    functions = dict.fromkeys(hit.function for hit in found)
    names = {value: name for f in functions for value, name in value_names(f).items()}
    rows: dict[object, list[Hit]] = {}
    for index, hit in enumerate(found):
        rows.setdefault(index if show_all else hit.key, []).append(hit)
    cells = [[str(len(hits)), *_row(hits, names)] for hits in rows.values()]
    if show_all:
        return Table(["program", "layer", "match", "at"], [row[1:] for row in cells])
    return Table(["times", "program", "layers", "first match", "at"], cells)


def _row(hits: Sequence[Hit], names: Mapping[Value, str]) -> list[str]:
    first = hits[0]
    layers = list(dict.fromkeys(hit.layer for hit in hits if hit.layer))
    where = ", ".join(folded(group) for group in groups(layers)) or "-"
    place = f"{first.place}/" if first.place else ""
    text = short(place + _text(first.match, names), 150)
    return [f"@{first.program}", where, text, ", ".join(first.lines) or "-"]


def _text(match: Match, names: Mapping[Value, str]) -> str:
    from graphgen.ops.external import shown_name

    parts = [
        f"{names[op.results[0]]} = {shown_name(op)}"
        f"({', '.join(names[value] for value in op.operands)}) : {op.results[0].type.text}"
        for op in match.ops
    ]
    return " -> ".join([*parts, *([f"return {match.output}"] if match.output else [])])
