"""How values lie over ranks, for ``graphgen opt --explain-sharding``: as a table and as JSON."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from graphgen.cli.console import Json, table

if TYPE_CHECKING:
    from graphgen.passes.sharding.explain import ExplainSharding


def sharding_watcher() -> ExplainSharding:
    """What looks on while passes run."""
    from graphgen.passes.sharding.explain import ExplainSharding

    return ExplainSharding()


def sharding_json(watcher: ExplainSharding | None) -> dict[str, Json]:
    """Every value, one object each."""
    if watcher is None:
        return {}
    return {"sharding": [asdict(reason) for reason in watcher.shown()]}


def sharding_text(watcher: ExplainSharding | None) -> str:
    """A table; values that are alike but for the layer are one row."""
    if watcher is None:
        return ""
    from graphgen.passes.sharding.explain import grouped

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
    headers = ["program", "value", "made by", "lies", "decided by", "bytes sent", "times"]
    return table(headers, rows, sys.stderr)
