"""Text and JSON reports on the differences of two programs, as ``graphgen diff`` prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.ir import Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.report.diff import OpDifference, ProgramDifference, grouped_changes, nameless
from graphgen.report.program_text import where_of
from graphgen.report.table import Table
from graphgen.report.units import folded, groups, pattern, short
from graphgen.text.printer import attr_text, value_names

Names = Mapping[Value, str]
# Rows of differences without --all.
_MOST = 12


def diff_text(found: ProgramDifference, *, show_all: bool) -> tuple[list[str | Table], int]:
    """One difference as text, and the number of groups of changes that are left out.

    Args:
        found: the difference.
        show_all: leave none out.
    """
    first, second = found.first, found.second
    if found.same:
        same = f"equal: @{first.name} and @{second.name}, {found.equal} ops, names and places aside"
        return [same], 0
    lines = [
        f"A @{first.name}: {first.block.size} ops    B @{second.name}: {second.block.size} ops, "
        f"{found.equal} of them equal"
    ]
    lines += interface_lines(found.interface, show_all=show_all)
    if not found.changes:
        return [*lines, "what is computed is equal"], 0
    names = {**value_names(first), **value_names(second)}
    changes = grouped_changes(found)
    shown = changes if show_all else changes[:_MOST]
    rows = [[str(len(g.changes)), _layers(g.layers), *_sides(g.changes[0])] for g in shown]
    table = Table(["times", "layers", "A / B", "A at", "B at"], rows)
    return [*lines, "", *_first(found.changes[0], names), "", table], len(changes) - len(shown)


def interface_lines(facts: Sequence[str], *, show_all: bool) -> list[str]:
    """Differences in the interface; of those that differ in names and places only, the first."""
    if show_all:
        return [f"  {line}" for line in facts]
    found: dict[str, list[str]] = {}
    for line in facts:
        subject, _, what = line.partition(": ")
        found.setdefault(f"{pattern(subject)}: {nameless(what)}", []).append(line)
    lines = [
        f"  {same[0]}" + (f" (and {len(same) - 1} like it)" if len(same) > 1 else "")
        for same in found.values()
    ]
    more = len(lines) - _MOST
    return lines if more <= 0 else [*lines[:_MOST], f"  and {more} more kinds; --all shows them"]


def _first(change: OpDifference, names: Names) -> list[str]:
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
    attrs = short(attr_text(op), 160)
    types = ", ".join(value.type.text for value in op.results)
    where = f"  # {op.loc!r}" if op.loc is not UNKNOWN else ""
    return f"{results} = {op.name}({operands}){attrs} : {types}{where}"


def _layers(names: Sequence[str]) -> str:
    return ", ".join(folded(group) for group in groups(names)) or "-"


def _sides(change: OpDifference) -> list[str]:
    ops = (change.first, change.second)
    return [short(change.what, 110), *(where_of(op.loc) if op else "-" for op in ops)]


def diff_json(found: ProgramDifference) -> dict[str, Json]:
    """One difference as JSON, with all its changes."""
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
            for group in grouped_changes(found)
        ],
    }
