"""Layouts of values over ranks, for ``graphgen opt --explain-sharding``: a table and JSON."""

from __future__ import annotations

from dataclasses import asdict

from graphgen.json_value import Json
from graphgen.passes.sharding.explain_sharding import ExplainSharding, grouped
from graphgen.report.table import Table


def sharding_json(watcher: ExplainSharding) -> list[Json]:
    """One object per value."""
    return [asdict(reason) for reason in watcher.shown()]


def sharding_table(watcher: ExplainSharding) -> Table:
    """One row per value; values that differ in the number of their layer only share a row."""
    rows = [
        [
            f"@{item.function}",
            item.value,
            item.at,
            f"{item.type} {item.sharding}",
            f"{item.decided}: {item.why}",
            f"{item.sent:,}" if item.sent else "",
            str(count),
        ]
        for item, count in grouped(watcher.shown())
    ]
    headers = ["program", "value", "made by", "layout", "decided by", "bytes sent", "times"]
    return Table(headers, rows)
