"""``graphgen diff``: differences between two modules, apart from names and places."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.diff_passes import diff_passes
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import AsJson, Dims, OnlyProgram
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.read_file import is_folder
from graphgen.report.table import Report, render

COMMAND: Final = Command("inspect", "Compare two modules by what they compute.", error_status=2)

# One side is a lowered program, which has its arguments only.
_BARE = ", how weights and states are prepared, which one of them does not have"


def _kind(name: str) -> str:
    return "function" if name.startswith("weights.") else "program"


# Programs of more multiplications are not run beside their comparison.
_SMALL = 1e8


def _equal_by_numbers(left: str, right: str) -> bool:
    """Test small programs for equal results; ``False`` for others, and for what cannot be run."""
    from graphgen.analysis.work import total
    from graphgen.passes.equiv.equiv import equivalent

    modules = read_module(left), read_module(right)
    try:
        for module in modules:
            ops = [op for function in module.functions.values() for op in function.block]
            flops = total(ops).flops
            if not isinstance(flops, int) or flops > _SMALL:
                return False
        return equivalent(*modules).equal
    except GraphgenError:
        return False


def _note_forms(uncarried: list[str], different: list[str]) -> None:
    """Note facts that one form has, and files that differ and compute the same."""
    for text in uncarried:
        note(f"not in both forms: {text}")
    if different and _equal_by_numbers(*different):
        note("different in writing, equal by numbers (graphgen equiv)")


def diff(
    left: Annotated[
        str, typer.Argument(metavar="A", help="A module in any form, or an XLA dump folder.")
    ],
    right: Annotated[
        str | None, typer.Argument(metavar="B", help="A module in any form; none for a folder.")
    ] = None,
    program: OnlyProgram = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="NAME", help="Of a folder: follow this op.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every difference, however many there are.")
    ] = False,
    dims: Dims = "",
    as_json: AsJson = False,
) -> None:
    """Compare two modules by what they compute from their arguments.

    Programs, the functions that prepare weights, pack and unpack states, and the interface count.
    Shardings, layouts, partitions, replica groups and whatever else a file says of its ops count;
    names, ids, places, the order of ops and what no output depends on do not. Arguments
    and outputs go together by name where both modules have the same names, else by position, and
    a change of their order, or of the argument that an output aliases, is reported. A change shows
    once, where it is made; the same change in every layer is one row. Exit status 0 without a
    difference, 1 with one, 2 on an error.

    XLA's converter simplifies what it makes of StableHLO: beside HLO, StableHLO that differs is
    compared as that converter writes it, and so are two files of StableHLO. One that leaves sizes
    open takes those of the other.

    Of one folder of XLA's dumps, a program is followed through its recorded passes: what each
    added, removed, fused, renamed and changed; --op says which passes touched one op, and how.

    \b
    Examples:
      graphgen diff before.pb after.pb
      graphgen diff dump/ --program jit_step
      graphgen diff dump/ --op dot_general.3
      graphgen diff dump.hlo mine.mlir --all
      graphgen diff a.gg b.gg --program decode --json
    """
    if right is None and is_folder(Path(left)):
        diff_passes(Path(left), program, op, show_all=show_all, as_json=as_json)
        return
    if right is None or op is not None:
        what = "B is missing" if right is None else "--op is of a dump folder"
        raise GraphgenError("GG0705", what, help="name two modules, or one folder of dumps")
    _diff_modules((left, right), program, dims, show_all=show_all, as_json=as_json)


def _diff_modules(
    names: tuple[str, str], program: str | None, dims: str, *, show_all: bool, as_json: bool
) -> None:
    from graphgen.analysis.annotation_diff import IGNORED
    from graphgen.cli.diff_forms import compare
    from graphgen.report.diff import with_bodies
    from graphgen.report.diff_report import diff_json, diff_text, interface_lines

    compared = compare(*names, program, dims)
    found = compared.found

    def facts() -> Json:
        programs = [diff_json(each) for item in found.programs for each in with_bodies(item)]
        return {
            "equal": found.same,
            "compared_in": compared.form,
            "only_in_one": [*found.unpaired],
            "module": [*found.module],
            "programs": programs,
            "prepared": [diff_json(each) for each in found.prepared],
            "only_in_one_form": [*compared.uncarried],
            "ignored": f"{IGNORED}{_BARE if found.bare else ''}",
        }

    def report() -> Report:
        blocks = [f"{_kind(name)} @{name} is in one of them only" for name in found.unpaired]
        blocks += interface_lines(found.module, show_all=show_all)
        for each in found.with_bodies:
            text, hidden = diff_text(each, show_all=show_all)
            blocks.append(render(text, sys.stdout).rstrip("\n"))
            if hidden:
                note(f"{hidden} more kinds of differences; --all shows them")
        if compared.form:
            note(f"compared in {compared.form}")
        _note_forms(compared.uncarried, [*names] if compared.foreign and not found.same else [])
        note(f"not compared: {IGNORED}{_BARE if found.bare else ''}")
        return "\n".join(blocks) + "\n"

    emit(as_json, facts, report)
    if not found.same:
        raise typer.Exit(1)
