"""``graphgen diff DIR``: the changes of each recorded pass of XLA, and the history of one op."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.cli.console import emit
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.report.table import Report, Table
from graphgen.report.units import short

if TYPE_CHECKING:
    from graphgen.lowering.xla_dump.pass_history import PassChange

_MOST_NAMES = 3


def diff_passes(
    folder: Path, program: str | None, op: str | None, *, show_all: bool, as_json: bool
) -> None:
    """Print the changes of a program's passes, or those of one of its ops.

    Raises:
        GraphgenError: GG0802 a folder without modules of XLA, GG0202 no such program or op.
    """
    from graphgen.lowering.xla_dump.dump_folder import hlo_source, is_dump_folder, read_folder
    from graphgen.lowering.xla_dump.pass_history import follow_op, pass_changes, read_state

    if not is_dump_folder(folder):
        what = "this folder has no modules named as XLA names them"
        help = "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_pass_re=.*' writes one"
        raise GraphgenError("GG0802", what, where=str(folder), help=help)
    chosen = read_folder(folder).program(program)
    states = chosen.states
    if len(states) < 2:
        what = f"{chosen.name} has {len(states)} modules, which leaves nothing to compare"
        raise GraphgenError("GG0802", what, where=str(folder))
    changes = pass_changes(states)
    if op is None:
        emit(
            as_json,
            lambda: _facts(chosen.name, len(states), changes),
            lambda: _report(chosen.name, len(states), changes, show_all=show_all),
        )
        return
    name = op.removeprefix("%")
    found = follow_op(changes, name)
    if not found and not any(
        name in read_state(hlo_source(s.path)) for s in (states[0], states[-1])
    ):
        names = ", ".join([*read_state(hlo_source(states[0].path))][:12])
        raise GraphgenError("GG0202", f"no op %{name} in {chosen.name}", help=f"it has {names}")
    emit(
        as_json,
        lambda: {
            "program": chosen.name,
            "op": name,
            "passes": [
                {"pass": change.name, "pipeline": change.pipeline, "what": what}
                for change, what in found
            ],
        },
        lambda: _op_report(name, found),
    )


def _facts(name: str, states: int, changes: Sequence[PassChange]) -> Json:
    return {
        "program": name,
        "records": states,
        "passes": [change.to_json() for change in changes],
    }


def _report(name: str, states: int, changes: Sequence[PassChange], *, show_all: bool) -> Report:
    rows = [
        [
            change.name,
            change.pipeline or "-",
            f"{change.before} to {change.after}",
            _count(change.added),
            _count(change.removed),
            _count(change.fused),
            _count(change.renamed),
            _count(change.rewritten),
            _examples(change, show_all=show_all),
        ]
        for change in changes
    ]
    headers = [
        *("pass", "pipeline", "ops", "added", "removed", "fused", "renamed", "changed"),
        "some of them",
    ]
    head = f"{name}: {states} records, {len(changes)} with changes; --op NAME follows one op\n"
    return [head, Table(headers, rows)]


def _count(found: Sequence[object]) -> str:
    return str(len(found)) if found else "-"


def _examples(change: PassChange, *, show_all: bool) -> str:
    parts = [
        *[f"{one} into {other}" for one, other in change.fused],
        *[f"-{name}" for name in change.removed],
        *[f"+{name}" for name in change.added],
        *[f"{one} is {other}" for one, other in change.renamed],
        *[f"{one}: {what}" for one, what in change.rewritten],
    ]
    shown = parts if show_all else parts[:_MOST_NAMES]
    text = ", ".join(shown)
    return text if show_all else short(text, 100)


def _op_report(name: str, found: Sequence[tuple[PassChange, str]]) -> Report:
    if not found:
        return f"%{name} is the same in all records\n"
    rows = [[change.name, change.pipeline or "-", what] for change, what in found]
    return [f"%{name}\n", Table(["pass", "pipeline", "what it does"], rows)]
