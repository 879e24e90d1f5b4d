"""Compile and compare the cells in which every three values of the axes occur.

    python -m tests.matrix                  # goes on where it was interrupted
    python -m tests.matrix --strength 2 --json

Results are lines of JSON in a file that is written whole after each cell. They hold until a source
of the packages or of the matrix changes. The exit code is 0 when every cell was run and is right.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.json_lines import JsonLines, digest_of

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".cache" / "matrix.jsonl"
SOURCES = ("graphgen", "passes", "lowering", "tests/matrix")

# The fields of a result; ``difference`` is NaN where the cell raised.
Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Report:
    """How many cells there are, were run and are right, and the results of the others."""

    strength: int
    cells: int
    run: int
    wrong: Sequence[Row]

    @property
    def good(self) -> bool:
        """Whether every cell was run and is right."""
        return self.run == self.cells and not self.wrong

    def as_text(self) -> str:
        """A line a wrong cell, then the counts."""
        listed = [f"{row['cell']}: {row['error'] or row['difference']}" for row in self.wrong]
        counts = f"strength {self.strength}: {self.cells} cells, {self.run} run"
        return "\n".join([*listed, f"{counts}, {self.run - len(self.wrong)} right"])

    def as_json(self) -> dict[str, object]:
        """The same, for a program to read."""
        counts = {"strength": self.strength, "cells": self.cells, "run": self.run}
        return {**counts, "wrong": [dict(row) for row in self.wrong]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells without a result; returns the exit code."""
    args = _parser().parse_args(arguments)
    # Passes are verified as in tests.
    runpy.run_path(str(ROOT / "tests" / "conftest.py"))
    os.environ.setdefault("GRAPHGEN_VERIFY", "2")
    report = run_cells(args.strength, args.results, args.limit)
    print(json.dumps(report.as_json(), indent=1) if args.json else report.as_text())
    return 0 if report.good else 1


def run_cells(strength: int, path: Path, limit: int | None) -> Report:
    """Run the cells of a strength whose result is not in the file.

    Args:
        strength: how many values of different axes occur together.
        path: the file of results; written.
        limit: how many cells are run at most; None for all.
    """
    from tests.matrix.axes import label
    from tests.matrix.covering import covering_cells

    digest, file = digest_of(ROOT, SOURCES), JsonLines(path)
    known: dict[str, Row] = {
        str(row["cell"]): row for row in file.read() if row["digest"] == digest
    }
    cells = {label(cell): cell for cell in covering_cells(strength)}
    waiting = [name for name in cells if name not in known][:limit]
    for number, name in enumerate(waiting, 1):
        row = known[name] = {"cell": name, "digest": digest, **run_cell(cells[name])}
        _tell(f"{number}/{len(waiting)} {name}: {row['error'] or row['difference']}")
        file.write_in_time(known.values(), last=number == len(waiting))
    rows = [known[name] for name in cells if name in known]
    return Report(strength, len(cells), len(rows), [row for row in rows if not row["right"]])


def run_cell(cell: Mapping[str, str]) -> Row:
    """The result of one cell, also where it raises."""
    from graphgen.passes.equiv.deviation import MEANING_BUDGET
    from tests.matrix.cells import cell_run, relative_difference

    start = time.monotonic()
    difference, error = float("nan"), ""
    try:
        difference = relative_difference(cell_run(cell))
    except Exception as raised:  # any cell may find a defect; the others are run all the same
        error = f"{type(raised).__name__}: {str(raised).splitlines()[0] if str(raised) else ''}"
    right = not error and difference <= MEANING_BUDGET
    seconds = round(time.monotonic() - start, 2)
    return {"difference": difference, "error": error, "right": right, "seconds": seconds}


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--strength", type=int, choices=(1, 2, 3), default=3, help="values that occur together")
    add("--results", type=Path, default=RESULTS, help="file of JSON lines to go on with")
    add("--limit", type=int, help="cells to run at most this time")
    add("--json", action="store_true", help="print the report as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
