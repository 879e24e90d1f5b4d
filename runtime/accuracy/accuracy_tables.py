"""Tables of an accuracy check, for people."""

from __future__ import annotations

from graphgen.report.table import Report, Table
from graphgen.runtime.accuracy.accuracy_check import (
    AccuracyReport,
    Spell,
    describe_failure,
    token_text,
)
from graphgen.runtime.accuracy.layer_comparison import LayerComparison
from graphgen.runtime.accuracy.logit_matching import LogitMatch, StepLogitsCheck
from graphgen.runtime.accuracy.token_matching import TokenMatch

# Failed steps in the table; the JSON form has all.
_SHOWN = 10


def accuracy_tables(report: AccuracyReport, spell: Spell = str) -> Report:
    """The verdict, errors by k or by row, failed steps, and the layers if they were compared."""
    verdict = "passed" if report.passed else f"FAILED: {describe_failure(report, spell)}"
    if isinstance(report.match, LogitMatch):
        blocks = [_errors(report.match), *_failures(report.match, spell)]
    else:
        blocks = [_rows(report.match, spell)]
    if report.layers is not None:
        blocks.append(_layers(report.layers))
    captured = [f"captured {one.file}\n" for one in report.captured]
    # A block ends in a newline; one more makes an empty line between two.
    return [*blocks, *captured, f"{verdict}\n"]


def _errors(match: LogitMatch) -> Table:
    """For each k the largest error and its place."""
    rows: list[list[str]] = []
    for index, (key, check) in enumerate(match.largest().items()):
        error = check.errors[index]
        relative = error.allowed / error.scale if error.scale else error.allowed
        rows.append(
            [
                key if error.tolerance.top_k is None else f"top {key}",
                f"{error.relative:.2e}",
                f"{relative:.2e}",
                str(check.row),
                str(check.step),
                "ok" if error.passed else "WRONG",
            ]
        )
    return Table(("logits", "largest error", "allowed", "row", "step", ""), rows, 4)


def _failures(match: LogitMatch, spell: Spell) -> list[Table]:
    failed = [check for check in match.steps if not check.passed]
    if not failed:
        return []
    rows = [_failure(check, spell) for check in failed[:_SHOWN]]
    if len(failed) > _SHOWN:
        rows.append([f"... {len(failed) - _SHOWN} more", "", "", "", ""])
    return [Table(("step", "row", "expected", "got", "error"), rows, 1)]


def _failure(check: StepLogitsCheck, spell: Spell) -> list[str]:
    worst = check.worst
    error = f"{worst.relative:.2e} in {worst.tolerance.name}"
    if worst.passed:
        error = f"{check.divergence_difference:.2e} below the best"
    tokens = [token_text(token, spell) for token in (check.expected_token, check.actual_token)]
    return [str(check.step), str(check.row), *tokens, error]


def _rows(match: TokenMatch, spell: Spell) -> Table:
    rows: list[list[str]] = []
    for row in match.rows:
        wanted, got = (row.token(side, row.step) for side in (row.expected, row.actual))
        differs = row.step >= 0
        rows.append(
            [
                str(row.row),
                str(len(row.expected)),
                str(row.step) if differs else "-",
                token_text(wanted, spell) if differs else "",
                token_text(got, spell) if differs else "",
            ]
        )
    return Table(("row", "tokens", "first difference", "expected", "got"), rows, 2)


def _layers(comparison: LayerComparison) -> Table:
    rows = [
        [
            layer.name,
            f"{layer.relative:.2e}",
            f"{layer.allowed:.2e}",
            "ok" if layer.explained else "first WRONG" if layer is comparison.first else "wrong",
        ]
        for layer in comparison.layers
    ]
    return Table((f"output of ({comparison.dtype})", "error", "allowed", ""), rows, 2)
