"""Verdicts of ``graphgen validate`` on standard output: a table for each module that was run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphgen.cli.console import emit

if TYPE_CHECKING:
    from graphgen.json_value import Json
    from graphgen.report.table import Table
    from graphgen.runtime.validation.validate_model import ModuleVerdicts


def write_verdicts(found: Sequence[ModuleVerdicts], *, coverage: bool, as_json: bool) -> None:
    """Write the verdicts on one module, or on each twin of a model.

    Args:
        found: in order.
        coverage: whether all that was exercised is printed, besides what was not.
        as_json: write one JSON object instead; twins stand in a list.
    """
    emit(
        as_json,
        lambda: {"twins": [_facts(one) for one in found]} if found[0].twin else _facts(found[0]),
        lambda: [part for one in found for part in _report(one, coverage)],
    )


def _facts(found: ModuleVerdicts) -> dict[str, Json]:
    from graphgen.passes.inspect.result_json import verdict_json
    from graphgen.passes.verify.coverage.coverage_json import stages_json
    from graphgen.passes.verify.verdict import coverage_stages

    facts: dict[str, Json] = {
        "passes": [verdict_json(verdict) for verdict in found.verdicts],
        "not_run": [*found.not_run],
        "coverage": stages_json(coverage_stages(found.verdicts)),
    }
    if found.twin is None:
        return facts
    run: dict[str, Json] = {"twin": found.twin, "passed": found.passed, "values": found.values}
    return {**run, "calls": [*found.calls], **facts}


def _report(found: ModuleVerdicts, coverage: bool) -> Iterator[str | Table]:
    from graphgen.cli.debug.proof_text import proof_lines
    from graphgen.cli.debug.verdict_text import verdict_faults, verdict_table
    from graphgen.passes.verify.coverage.coverage_text import summary, tables
    from graphgen.passes.verify.verdict import coverage_stages

    if found.twin is not None:
        yield f"{found.twin} twin, {len(found.calls)} calls, {found.values} values:"
    yield verdict_table(found.verdicts)
    yield from verdict_faults(found.verdicts, found.not_run, found.calls)
    yield from proof_lines(found.verdicts)
    stages = coverage_stages(found.verdicts)
    yield summary(stages)
    if coverage:
        yield from tables(stages)
