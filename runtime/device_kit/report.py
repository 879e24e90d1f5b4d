"""The report and the JSON of ``graphgen device-kit read``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graphgen.json_value import Json
from graphgen.report.table import Report, Table
from graphgen.runtime.device_kit.reading import KitReading
from graphgen.runtime.device_kit.verdicts import LEARNED, UNSURE
from graphgen.runtime.kit_runner.log_text import counted


def reading_json(reading: KitReading) -> Json:
    """Everything."""
    results = reading.results
    return {
        "target": results["target"],
        "lnc": results["lnc"],
        "kit": results["kit"],
        "facts": cast(Json, results["facts"]),
        "missing": results["missing"],
        "verdicts": {**reading.counts},
        "rules": [{**row} for row in reading.evidence["rules"]],
        "learned": [
            {"case": item.case["name"], "outcome": item.outcome, "code": item.code or None}
            for item in reading.verdicts
            if item.kind == LEARNED
        ],
        "unsure": [
            {"case": item.case["name"], "why": item.what}
            for item in reading.verdicts
            if item.kind == UNSURE
        ],
        "figures": [{**row} for row in reading.evidence["figures"]],
        "times": [{**row} for row in reading.evidence["times"]],
        "contradictions": [item.to_json() for item in reading.contradictions],
    }


def reading_report(reading: KitReading) -> Report:
    """Rules, times and contradictions."""
    results, facts = reading.results, reading.results["facts"]
    how = f"executed by {facts['execution']}" if facts["execution"] else "compiled only"
    head = (
        f"{counted(len(results['cases']), 'case')} on {facts['instance'] or results['target']}, "
        f"neuronx-cc {facts['compiler']}, {how}\n"
    )
    if results["missing"]:
        head += f"missing: {counted(results['missing'], 'case')}; run.py goes on where it was\n"
    counts = ", ".join(f"{count} {kind}" for kind, count in reading.counts.items())
    parts: list[str | Table] = [head, f"verdicts: {counts}\n"]
    if rules := _rules(reading):
        parts.append(Table(["rule", "confirmed by", "contradicted by", "trust"], rules))
    if figures := _figures(reading):
        parts.append(Table(["rate of a core", "published", "measured", "share"], figures))
    if times := _times(reading):
        parts.append(Table(["program", "published ms", "measured ms", "times as long"], times))
    if reading.contradictions:
        parts.append(
            f"{counted(len(reading.contradictions), 'contradiction')}, ready to be filed:\n"
        )
        parts += [f"{item.title}\n{item.body}" for item in reading.contradictions]
    return parts


def _rules(reading: KitReading) -> list[list[str]]:
    rows: list[list[str]] = []
    for row in reading.evidence["rules"]:
        confirmed = cast("Sequence[str]", row["confirmed"])
        contradicted = cast("Sequence[str]", row["contradicted"])
        trust = "raised" if not contradicted else "lowered" if not confirmed else "mixed"
        counts = (counted(len(names), "case") for names in (confirmed, contradicted))
        rows.append([str(row["rule"]), *counts, trust])
    return rows


def _figures(reading: KitReading) -> list[list[str]]:
    rows: list[list[str]] = []
    for item in reading.figures:
        share = f"{100 * item.measured / item.published:.0f} %" if item.published else ""
        published = f"{item.published:.1f}" if item.published else ""
        rows.append([item.name, published, f"{item.measured:.1f}", share])
    return rows


def _times(reading: KitReading) -> list[list[str]]:
    rows: list[list[str]] = []
    for row in reading.evidence["times"]:
        if str(row["case"]).startswith(("op/", "rate/", "rewrite/")):
            continue
        seconds, bound = float(str(row["seconds"])), float(str(row["bound_s"]))
        rows.append(
            [
                str(row["case"]),
                f"{1e3 * bound:.4f}",
                f"{1e3 * seconds:.4f}",
                f"{seconds / bound:.1f}",
            ]
        )
    return rows
