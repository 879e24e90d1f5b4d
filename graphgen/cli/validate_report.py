"""The page of ``graphgen validate --trace``: trace of the passes, verdicts and coverage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.cli.console import emit, note
from graphgen.cli.files import STANDARD, check_output, write_text
from graphgen.cli.html_pages import page_link

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.json_value import Json
    from graphgen.passes.core import Pass
    from graphgen.passes.validate import Verdict
    from graphgen.report.table import Table
    from graphgen.runtime.accuracy.validate_model import ModuleVerdicts


def write_verdicts(found: Sequence[ModuleVerdicts], *, coverage: bool, as_json: bool) -> None:
    """Write the verdicts on one module, or on each twin of a model.

    Args:
        found: in order.
        coverage: whether all that was exercised is printed, besides what was not.
        as_json: write one JSON object instead; twins stand in a list.
    """
    emit(
        as_json,
        lambda: {"twins": [_facts(one) for one in found]} if found[0].twin else _of_file(found),
        lambda: [part for one in found for part in _report(one, coverage)],
    )


def _of_file(found: Sequence[ModuleVerdicts]) -> dict[str, Json]:
    """The verdicts on a module, those of its wide twin in place of right ones, and the latter."""
    from graphgen.passes.inspect.result_json import verdict_json

    run, *others = found
    facts = _facts(run)
    for wide in others:
        rows: list[Json] = []
        pairs = zip_longest(run.verdicts, [] if wide.whole else wide.verdicts)
        for own, other in pairs:
            worse = other is not None and not other.passed and (own is None or own.passed)
            chosen = other if worse or own is None else own
            assert chosen is not None
            rows.append({**verdict_json(chosen), **({"twin": "wide"} if worse else {})})
        facts |= {"passes": rows, "wide": _facts(wide)}
    return facts


def _facts(found: ModuleVerdicts) -> dict[str, Json]:
    from graphgen.passes.inspect.result_json import verdict_json
    from graphgen.passes.validate.subnormals import subnormals_json
    from graphgen.passes.validate.verdict import coverage_stages
    from graphgen.passes.workload.coverage_report import stages_json

    facts: dict[str, Json] = {
        "passes": [verdict_json(verdict) for verdict in found.verdicts],
        "not_run": [*found.not_run],
        "coverage": stages_json(coverage_stages(found.verdicts)),
        "subnormals": subnormals_json(found.passes),
    }
    if found.twin is None:
        return facts
    run: dict[str, Json] = {"twin": found.twin, "passed": found.passed, "values": found.values}
    return {**run, "calls": [*found.calls], **facts}


def _report(found: ModuleVerdicts, coverage: bool) -> Iterator[str | Table]:
    from graphgen.passes.validate.subnormals import subnormals_text
    from graphgen.passes.validate.verdict import coverage_stages
    from graphgen.passes.validate.verdict_text import (
        budget_text,
        finite_text,
        proof_lines,
        verdict_faults,
        verdict_table,
    )
    from graphgen.passes.workload.coverage_report import summary, tables

    if found.twin is not None:
        calls = f"{found.twin} twin, {len(found.calls)} calls, {found.values} values:"
        ends = f" {found.verdicts[0].pass_text}: {found.verdicts[0].state}\n"
        yield calls + ends if found.whole else calls
    if not found.whole:
        yield verdict_table(found.verdicts)
    yield from verdict_faults(found.verdicts, found.not_run, found.calls)
    yield from budget_text(found.verdicts)
    yield from finite_text(found.verdicts)
    yield from proof_lines(found.verdicts)
    stages = coverage_stages(found.verdicts)
    if subnormals := subnormals_text(found.passes):
        yield subnormals
    yield summary(stages)
    if coverage:
        yield from tables(stages)


def check_page(output: str | None) -> None:
    """Refuse a page that cannot be written before any work is done for it (GG0704)."""
    if output is not None:
        check_output(output)


def write_validation_page(
    output: str,
    name: str,
    module: Module,
    passes: Sequence[Pass],
    verdicts: Sequence[Verdict],
    notes: Sequence[str] = (),
) -> None:
    """Run the validated passes once more and write the trace with their verdicts.

    Args:
        output: path of the HTML file, ``-`` for standard output.
        name: of the module's file or model, for the title.
        module: changed in place.
        passes: the pipeline.
        verdicts: of its first passes; one that raised is in the table only.
        notes: what each call of the workload is made for.

    Raises:
        GraphgenError: GG0704 if the file cannot be written.
    """
    from graphgen.lowering.stablehlo import stablehlo_places
    from graphgen.passes.inspect.recording import record
    from graphgen.passes.inspect.report import report
    from graphgen.report import trace_page

    recording = record(module, passes[: sum(verdict.raised is None for verdict in verdicts)])
    pairs = list(zip(recording.stages, verdicts, strict=False))
    guilty = {stage.label: verdict.at_fault for stage, verdict in pairs}
    data = report(recording, stablehlo_places(recording.module), guilty)
    not_run = [str(item) for item in passes[len(verdicts) :]]
    data["validation"] = validation_view(verdicts, not_run, notes)
    write_text(output, trace_page(f"graphgen validate {Path(name).name}", data))
    if output != STANDARD:
        note(f"wrote {output}: {len(verdicts)} verdicts")
        for stage, verdict in pairs:
            shown = verdict.guilty or verdict.searched
            if not verdict.ok or verdict.searched:
                place = {"rewrite": shown.number} if shown else {}
                note(f"{verdict.state}: {page_link(output, pass_=stage.label, **place)}")


def validation_view(
    verdicts: Sequence[Verdict], not_run: Sequence[str], notes: Sequence[str] = ()
) -> dict[str, Json]:
    """Verdicts and coverage as the page shows them.

    Args:
        verdicts: in order.
        not_run: the passes after one that raised.
        notes: what each call of the workload is made for.
    """
    from graphgen.passes.validate.verdict import coverage_stages
    from graphgen.passes.validate.verdict_text import proof_lines, verdict_faults, verdict_table
    from graphgen.passes.workload.coverage_report import stages_json, summary, tables
    from graphgen.report.table import Table

    stages = coverage_stages(verdicts)
    proofs = list(proof_lines(verdicts))
    return {
        "verdicts": _table_json(verdict_table(verdicts)),
        "states": [verdict.state for verdict in verdicts],
        "guilty": [_shown_number(verdict) for verdict in verdicts],
        "faults": [list(verdict_faults([verdict], not_run, notes)) for verdict in verdicts],
        "not_run": list(not_run),
        "proofs": [_table_json(part) if isinstance(part, Table) else part for part in proofs],
        "calls": list(notes),
        "summary": summary(stages),
        "tables": [_table_json(table) for table in tables(stages)],
        "coverage": stages_json(stages),
    }


def _shown_number(verdict: Verdict) -> int | None:
    """The number of the rewrite that a row of the table of verdicts links to."""
    shown = verdict.guilty or verdict.searched
    return None if shown is None else shown.number


def _table_json(table: Table) -> dict[str, Json]:
    rows: list[Json] = [list(row) for row in table.rows]
    return {"titles": list(table.headers), "rows": rows, "numeric": table.numeric}
