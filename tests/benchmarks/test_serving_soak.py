"""The soak of the server for three minutes, and what it calls wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.serving_soak import FILE_SLACK, MEMORY_SLACK, Soak, findings, main

METRICS = "graphgen_rows_taken 0.0\ngraphgen_blocks_taken 0.0\n"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_server_keeps_its_memory_over_three_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    report = tmp_path / "soak.json"
    monkeypatch.setattr(sys, "argv", ["soak", "--minutes", "3", "--json", str(report)])
    status = main()
    found = json.loads(report.read_text())
    assert (status, found["wrong"]) == (0, [])
    assert {"200", "400", "left"} <= set(found["answers"])
    assert sum(found["answers"].values()) > 100


def soak() -> Soak:
    """One in which all is right."""
    made = Soak(0.0, memory=[700 << 20] * 9, files=[30] * 9)
    made.statuses.update({"200": 5, "400": 2, "left": 1})
    return made


def test_nothing_is_wrong_with_an_even_run():
    assert findings(soak(), METRICS) == []


def test_what_is_wrong_is_named():
    grown = soak()
    grown.statuses["500"] = 2
    grown.memory[-3:] = [(700 << 20) + MEMORY_SLACK + (1 << 20)] * 3
    grown.files[-3:] = [30 + FILE_SLACK + 1] * 3
    assert findings(grown, METRICS.replace("blocks_taken 0.0", "blocks_taken 3.0")) == [
        "2 answers with status 500",
        "memory grows by 13.0 MiB in a third",
        "9 more files are open",
        "graphgen_blocks_taken is 3 at the end",
    ]
