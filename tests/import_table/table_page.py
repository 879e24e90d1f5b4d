"""The stored results, and the section of ``docs/importing.md`` that is made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphgen.atomic_write import write_whole
from tests.import_table.cells import CELLS, Cell

ROOT = Path(__file__).resolve().parents[2]
STORED = Path(__file__).with_name("results.json")
GUIDE = ROOT / "docs" / "importing.md"
HEADING = "## Supported programs\n"
# Rows of each part that have to be right in every cell.
ENOUGH = {"transformers": 26, "JAX": 13}

INTRODUCTION = """
This table is made by `python -m tests.import_table` from small random models: transformers' own
classes through `torch.export`, and programs of JAX. *NumPy* and *CPU* are `graphgen run`: the
largest difference from torch or JAX, relative to the largest number. *raised* counts the composites
that were found, of those the mathematics has. *tp 2* and *tp 4* are `default{tp=N}` compared with
the import by `equiv` in float64. *HLO* is `lower --target trn2 --to hlo`, read by XLA itself, and
`check` without an error. Experts of transformers are exported here in their default form, grouped
products.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: which part it is of, its name and its cells by name."""

    part: str
    label: str
    cells: Mapping[str, Cell]

    @property
    def good(self) -> bool:
        """Whether every cell is as it should be."""
        return all(cell.good for cell in self.cells.values())


def summary(rows: Sequence[Row]) -> str:
    """How many rows of each part are right in every cell, and the reasons of the others."""
    lines: list[str] = []
    for part, least in ENOUGH.items():
        here = [row for row in rows if row.part == part]
        good = sum(row.good for row in here)
        lines.append(f"{part}: {good} of {len(here)} are right in every cell, {least} wanted")
        for row in here:
            wrong = [f"{n}: {c.text}" for n, c in row.cells.items() if not c.good and c.text]
            lines += [f"  {row.label}: {'; '.join(wrong)}"] if wrong else []
    return "\n".join(lines)


def enough(rows: Sequence[Row]) -> bool:
    """Test whether as many rows are right as there have to be."""
    counts = {part: sum(row.good for row in rows if row.part == part) for part in ENOUGH}
    return all(counts[part] >= least for part, least in ENOUGH.items())


def section(rows: Sequence[Row]) -> str:
    """The section of the guide, from its heading on."""
    tables = [_table(part, [row for row in rows if row.part == part]) for part in ENOUGH]
    return HEADING + INTRODUCTION + "".join(tables)


def _table(part: str, rows: Sequence[Row]) -> str:
    good = sum(row.good for row in rows)
    head = f"\n{part}: {good} of {len(rows)} right in every cell.\n\n"
    lines = [[part, *CELLS], ["---"] * (len(CELLS) + 1)]
    lines += [[row.label, *[_text(row.cells[name]) for name in CELLS]] for row in rows]
    return head + "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _text(cell: Cell) -> str:
    if not cell.text:
        return ""
    return cell.text if cell.good else f"**no**: {cell.text}".replace("|", "\\|")


def stored() -> list[Row]:
    """The rows of the file of results."""
    found = json.loads(STORED.read_text(encoding="utf-8"))
    return [
        Row(row["part"], row["label"], {n: Cell(**c) for n, c in row["cells"].items()})
        for row in found
    ]


def write_page(rows: Sequence[Row]) -> None:
    """Write the file of results and the section of the guide."""
    made = [
        {
            "part": row.part,
            "label": row.label,
            "cells": {n: {"good": c.good, "text": c.text} for n, c in row.cells.items()},
        }
        for row in rows
    ]
    text = json.dumps(made, indent=1) + "\n"
    write_whole(STORED, lambda file: file.write(text.encode()))
    guide = GUIDE.read_text(encoding="utf-8").partition(HEADING)[0]
    page = guide.rstrip("\n") + "\n\n" + section(rows)
    write_whole(GUIDE, lambda file: file.write(page.encode()))
