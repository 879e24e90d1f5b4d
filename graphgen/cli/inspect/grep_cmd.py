"""``graphgen grep``: where a pattern of ops stands in a module."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.analysis.pattern import KINDS
from graphgen.cli.console import Json, note, table, write_json, write_stdout
from graphgen.cli.module_file import read_module
from graphgen.cli.units import folded, groups, pattern, short
from graphgen.ir import Function, Module, Op
from graphgen.ir.loc import UNKNOWN
from graphgen.ops import OPS
from graphgen.text.printer import value_names

if TYPE_CHECKING:
    from graphgen.analysis.pattern import Match, OpPattern


def grep(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A module in any form; - is stdin.")],
    wanted: Annotated[str, typer.Argument(metavar="PATTERN", help="What to look for, see below.")],
    program: Annotated[
        str | None, typer.Option("--program", metavar="NAME", help="Only this program.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every match; identical layers are not folded.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find ops by what they are, what they read and who reads them.

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
    from graphgen.analysis.overview import overview
    from graphgen.analysis.pattern import Known, find, parse_pattern

    chain = parse_pattern(wanted)
    module = read_module(file)
    found: list[tuple[Function, Match, str]] = []
    for function in _functions(module, program):
        seen = overview(module, function, 0)
        kinds = {value: part.kind for part in seen.parts for value in part.values}
        known = Known(kinds, seen.layer_of)
        found += [
            (seen.function, match, seen.layer_of.get(match.ops[0], ""))
            for match in find(seen.function, chain, known)
        ]
    if as_json:
        write_json([_json(*item) for item in found])
    elif found:
        _print(found, chain, show_all=show_all)
    if not found:
        if not as_json:
            _tell_nothing(module, wanted)
        raise typer.Exit(1)


def _tell_nothing(module: Module, wanted: str) -> None:
    """Say that there is no match; a name that no op has may be why."""
    note("no match")
    known: set[str] = {
        _called(op).replace("-", "_") for f in module.functions.values() for op in f.block
    }
    known.update(OPS, ("dot", "broadcast", *KINDS, "const", "return"))
    text = re.sub(r"\{[^}]*\}|:\s*\S+|[%$][^\s,(){}|]+", " ", wanted)
    for name in re.findall(r"[A-Za-z][\w*?.]*(?:-(?!>)[\w*?.]+)*", text):
        if not set(name) & set("*?") and name.replace("-", "_") not in known | {"hlo.opaque"}:
            near = get_close_matches(name, sorted(known), n=2)
            note(f"no op is called {name}" + (f"; there is {', '.join(near)}" if near else ""))


def _functions(module: Module, program: str | None) -> list[Function]:
    if program is not None:
        return [module.function(program.removeprefix("@"))]
    return module.programs() or list(module.functions.values())


def _print(
    found: list[tuple[Function, Match, str]], chain: tuple[OpPattern, ...], *, show_all: bool
) -> None:
    """One row a match, or one for those that differ in numbers only."""
    names = {value: name for f in dict.fromkeys(f for f, _, _ in found)
             for value, name in value_names(f).items()}  # fmt: skip

    def shown(match: Match) -> str:
        parts = [
            f"{names[op.results[0]]} = {_called(op)}"
            f"({', '.join(names[value] for value in op.operands)}) : {op.results[0].type.text}"
            for op in match.ops
        ]
        return " -> ".join([*parts, *([f"return {match.output}"] if match.output else [])])

    made: dict[object, list[tuple[Function, Match, str]]] = {}
    for index, item in enumerate(found):
        function, match, layer = item
        kinds = tuple(
            (op.name, op.attrs, op.results[0].type, pattern(op.loc.scope)) for op in match.ops
        )
        key = (function.name, kinds, pattern(layer), pattern(match.output))
        made.setdefault(index if show_all else key, []).append(item)
    rows: list[list[str]] = []
    for items in made.values():
        function, match, _ = items[0]
        layers = list(dict.fromkeys(layer for _, _, layer in items if layer))
        where = ", ".join(folded(group) for group in groups(layers)) or "-"
        rows.append(
            [str(len(items)), f"@{function.name}", where, short(shown(match), 150), _lines(match)]
        )
    if show_all:
        rows = [row[1:] for row in rows]
    headers = ["program", "layer", "match", "at"] if show_all else [
        "times", "program", "layers", "first match", "at"
    ]  # fmt: skip
    write_stdout(table(headers, rows, sys.stdout))


def _called(op: Op) -> str:
    return op.attrs.text("opcode") if op.name == "hlo.opaque" else op.name


def _lines(match: Match) -> str:
    return ", ".join(dict.fromkeys(_where(match))) or "-"


def _where(match: Match) -> Iterator[str]:
    for op in match.ops:
        if op.loc is not UNKNOWN:
            yield f"{op.loc.file}:{op.loc.line}"


def _json(function: Function, match: Match, layer: str) -> dict[str, Json]:
    return {
        "program": function.name,
        "layer": layer or None,
        "output": match.output or None,
        "ops": [
            {
                "op": _called(op),
                "results": [value.name for value in op.results],
                "operands": [value.name for value in op.operands],
                "type": op.results[0].type.text,
                "where": f"{op.loc.file}:{op.loc.line}" if op.loc is not UNKNOWN else None,
                "scope": op.loc.scope or None,
            }
            for op in match.ops
        ],
    }
