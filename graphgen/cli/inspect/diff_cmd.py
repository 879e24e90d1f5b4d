"""``graphgen diff``: what two modules compute differently, names and places aside."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, note, table, write_json, write_stdout
from graphgen.cli.module_file import read_module
from graphgen.cli.units import folded, groups, pattern, short
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.text.printer import attr_text, value_names

if TYPE_CHECKING:
    from graphgen.analysis.diff import Change, Difference

Names = Mapping[Value, str]
# Rows of differences without --all.
_MOST = 12


@dataclass(frozen=True, slots=True)
class _Group:
    """Changes that differ in numbers only, such as one a layer."""

    changes: list[Change]
    layers: list[str]


def diff(
    left: Annotated[str, typer.Argument(metavar="A", help="A module in any form.")],
    right: Annotated[str, typer.Argument(metavar="B", help="A module in any form.")],
    program: Annotated[
        str | None, typer.Option("--program", metavar="NAME", help="Only this program.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every difference, however many there are.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two modules by what they compute from their arguments.

    Names, ids, places, the order of ops and what no output depends on make no difference. Arguments
    and outputs go together by name where both modules have the same names, else by position, and
    a change of their order, or of what an output takes over, is told. A change shows once, where it
    is made; the same change in every layer is one row. Exit status 0 without a difference, 1 with
    one, 2 on an error.

    \b
    Examples:
      graphgen diff before.pb after.pb
      graphgen diff dump.hlo mine.mlir --all
      graphgen diff a.gg b.gg --program decode --json
    """
    from graphgen.analysis.diff import diff_functions

    modules = (read_module(left), read_module(right))
    pairs, alone = _pairs(modules, program)
    found = [diff_functions(modules, *pair) for pair in pairs]
    if as_json:
        programs = [_json(each) for item in found for each in _with_bodies(item)]
        write_json({"equal": not alone and all(item.same for item in found),
                    "only_in_one": [*alone], "programs": programs})  # fmt: skip
    else:
        lines = [f"program @{name} is in one of them only" for name in alone]
        lines += [_text(each, show_all=show_all) for item in found for each in _with_bodies(item)]
        write_stdout("\n".join(lines) + "\n")
    if alone or not all(item.same for item in found):
        raise typer.Exit(1)


def _pairs(
    modules: tuple[Module, Module], program: str | None
) -> tuple[list[tuple[Function, Function]], list[str]]:
    """Programs that are compared, and the names of those that have no counterpart."""
    first, second = (_functions(module, program) for module in modules)
    if len(first) == len(second) == 1:
        return list(zip(first.values(), second.values(), strict=True)), []
    pairs = [(function, second[name]) for name, function in first.items() if name in second]
    alone = [name for name in (*first, *second) if not (name in first and name in second)]
    if not pairs:
        raise GraphgenError(
            "GG0705",
            "the modules have no program of the same name",
            help=f"they have {', '.join(first)} and {', '.join(second)}",
        )
    return pairs, alone


def _functions(module: Module, program: str | None) -> dict[str, Function]:
    programs = {function.name: function for function in module.programs()} or module.functions
    if program is None or (len(programs) == 1 and program not in programs):
        return programs
    return {program: module.function(program.removeprefix("@"))}


def _with_bodies(found: Difference) -> Iterator[Difference]:
    """A difference, and those of what its loops and choices run, each pair of functions once."""
    seen: set[tuple[str, str]] = set()
    work = [found]
    while work:
        item = work.pop(0)
        names = (item.first.name, item.second.name)
        if names not in seen:
            seen.add(names)
            yield item
            work += item.bodies


def _grouped(found: Difference) -> list[_Group]:
    from graphgen.analysis.layers import layers_of

    layer_of = {
        op: name
        for function in (found.first, found.second)
        for name, ops in layers_of(function).items()
        for op in ops
    }
    made: dict[tuple[str, str], _Group] = {}
    for change in found.changes:
        op = change.first or change.second
        layer = layer_of.get(op, "") if op is not None else ""
        scope = op.loc.scope if op is not None else ""
        group = made.setdefault((pattern(change.what), pattern(scope or layer)), _Group([], []))
        group.changes.append(change)
        if layer and layer not in group.layers:
            group.layers.append(layer)
    return list(made.values())


def _text(found: Difference, *, show_all: bool) -> str:
    first, second = found.first, found.second
    if found.same:
        return f"equal: @{first.name} and @{second.name}, {found.equal} ops, names and places aside"
    lines = [
        f"A @{first.name}: {first.block.size} ops    B @{second.name}: {second.block.size} ops, "
        f"{found.equal} of them equal"
    ]
    lines += _interface(found.interface, show_all=show_all)
    if not found.changes:
        return "\n".join([*lines, "what is computed is equal"])
    names = {**value_names(first), **value_names(second)}
    lines += ["", *_first(found.changes[0], names)]
    made = _grouped(found)
    shown = made if show_all else made[:_MOST]
    rows = [[str(len(g.changes)), _layers(g.layers), *_sides(g.changes[0])] for g in shown]
    lines += ["", table(["times", "layers", "A / B", "A at", "B at"], rows, sys.stdout).rstrip()]
    if len(made) > len(shown):
        note(f"{len(made) - len(shown)} more kinds of differences; --all shows them")
    return "\n".join(lines)


def _interface(facts: Sequence[str], *, show_all: bool) -> list[str]:
    """Differences in the interface; of those that differ in numbers only, the first."""
    if show_all:
        return [f"  {line}" for line in facts]
    found: dict[str, list[str]] = {}
    for line in facts:
        found.setdefault(pattern(line), []).append(line)
    lines = [
        f"  {same[0]}" + (f" (and {len(same) - 1} like it)" if len(same) > 1 else "")
        for same in found.values()
    ]
    more = len(lines) - _MOST
    return lines if more <= 0 else [*lines[:_MOST], f"  and {more} more kinds; --all shows them"]


def _first(change: Change, names: Names) -> list[str]:
    """The first difference in full."""
    return [
        f"first difference: {change.what}",
        f"  A {_op(change.first, names)}",
        f"  B {_op(change.second, names)}",
    ]


def _op(op: Op | None, names: Names) -> str:
    if op is None:
        return "-"
    results = ", ".join(names[value] for value in op.results)
    operands = ", ".join(names[value] for value in op.operands)
    attrs = attr_text(op)
    attrs = attrs if len(attrs) <= 160 else f"{attrs[:157]}..."
    types = ", ".join(value.type.text for value in op.results)
    where = f"  # {op.loc!r}" if op.loc is not UNKNOWN else ""
    return f"{results} = {op.name}({operands}){attrs} : {types}{where}"


def _layers(names: Sequence[str]) -> str:
    return ", ".join(folded(group) for group in groups(names)) or "-"


def _sides(change: Change) -> list[str]:
    return [short(change.what, 110), _where(change.first), _where(change.second)]


def _where(op: Op | None) -> str:
    return f"{op.loc.file}:{op.loc.line}" if op is not None and op.loc is not UNKNOWN else "-"


def _json(found: Difference) -> dict[str, Json]:
    names = {**value_names(found.first), **value_names(found.second)}
    return {
        "first": found.first.name,
        "second": found.second.name,
        "equal": found.same,
        "equal_ops": found.equal,
        "interface": [*found.interface],
        "changes": [
            {
                "what": group.changes[0].what,
                "times": len(group.changes),
                "layers": [*group.layers],
                "first": _op(group.changes[0].first, names),
                "second": _op(group.changes[0].second, names),
            }
            for group in _grouped(found)
        ],
    }
