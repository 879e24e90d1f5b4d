"""Import every model of the table in ``docs/importing.md`` and write the table.

    python -m tests.import_table                     # goes on where it was interrupted
    python -m tests.import_table --only 'Llama*'      # some rows, again
    python -m tests.import_table --write             # the results and the guide

Each row is a child process that prints a cell when it is done; one that takes too long is ended
and the next cell is given to another. The exit code is 0 when enough rows are right in every cell.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

from graphgen.atomic_write import write_whole
from tests.import_table.cells import CELLS, Cell
from tests.import_table.table_page import ROOT, Row, enough, summary, write_page

RESULTS = ROOT / ".cache" / "import_table.jsonl"
FOLDER = ROOT / ".cache" / "import_table"
SOURCES = ("graphgen", "passes", "lowering", "tests/import_table")
LIMIT_S = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows without a result; returns the exit code."""
    args = _parser().parse_args(arguments)
    if args.child:
        return _child(*args.child)
    known = _known()
    rows = [(part, label) for part, found in _labels().items() for label in found]
    digest = _digest()
    for part, label in rows:
        if not any(fnmatch(label, pattern) for pattern in args.only or ["*"]):
            continue
        found = known.get(label)
        if not args.write and (args.only or found is None or found["digest"] != digest):
            cells = measure(part, label, args.limit)
            known[label] = {"part": part, "label": label, "digest": digest, "cells": cells}
            _write(known)
            print(_line(label, cells), flush=True)
    ordered = [_row(known[label]) for _, label in rows if label in known]
    if args.write:
        write_page(ordered)
    print(summary(ordered))
    return 0 if enough(ordered) else 1


def measure(part: str, label: str, limit_s: float) -> dict[str, Mapping[str, str | bool]]:
    """Run the cells of a row in child processes."""
    folder = FOLDER / re.sub(r"\W+", "_", label)
    folder.mkdir(parents=True, exist_ok=True)
    cells: dict[str, Mapping[str, str | bool]] = {}
    while len(cells) < len(CELLS):
        waiting = [name for name in CELLS if name not in cells]
        cells |= dict(_cells_of_child(part, label, folder, waiting, limit_s))
        failed = "imports" in cells and not cells["imports"]["good"]
        left = [name for name in waiting if name not in cells]
        if failed:
            cells |= {name: {"good": False, "text": ""} for name in left}
        elif left:
            cells[left[0]] = {
                "good": False,
                "text": "no result",
            }
    return cells


def _cells_of_child(
    part: str, label: str, folder: Path, names: Sequence[str], limit_s: float
) -> Iterator[tuple[str, Mapping[str, str | bool]]]:
    words = [sys.executable, "-m", "tests.import_table", "--child", part, label, str(folder)]
    with subprocess.Popen(
        [*words, ",".join(names)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        selector = selectors.DefaultSelector()
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(limit_s):
            line = child.stdout.readline()
            if not line:
                return
            name, _, rest = line.partition("\t")
            yield name, json.loads(rest)
        child.kill()


def _child(part: str, label: str, folder: str, names: str) -> int:
    """Print the cells of a row, a line each."""
    from tests.import_table.cells import run_cell
    from tests.import_table.rows import source_of

    # Only cells are written to the parent.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    source = source_of(part, label)
    for name in names.split(","):
        cell = run_cell(name, source, Path(folder))
        print(f"{name}\t{json.dumps({'good': cell.good, 'text': cell.text})}", file=out, flush=True)
        if name == "imports" and not cell.good:
            break
    return 0


def _labels() -> Mapping[str, Sequence[str]]:
    from tests.import_table.rows import labels

    return labels()


def _row(found: Mapping[str, object]) -> Row:
    cells: dict[str, Cell] = {}
    given = found["cells"]
    assert isinstance(given, dict)
    for name in CELLS:
        cells[name] = Cell(**given[name])
    return Row(str(found["part"]), str(found["label"]), cells)


def _line(label: str, cells: Mapping[str, Mapping[str, str | bool]]) -> str:
    return f"{label}: " + " | ".join(
        f"{'' if cell['good'] else 'NO '}{cell['text']}" for cell in cells.values()
    )


def _known() -> dict[str, Mapping[str, object]]:
    if not RESULTS.exists():
        return {}
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    return {row["label"]: row for row in map(json.loads, lines)}


def _write(known: Mapping[str, Mapping[str, object]]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    text = "".join(f"{json.dumps(row)}\n" for row in known.values())
    write_whole(RESULTS, lambda file: file.write(text.encode()))


def _digest() -> str:
    made = sha256()
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            made.update(file.read_bytes())
    return made.hexdigest()[:16]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.import_table", description=__doc__)
    parser.add_argument("--only", action="append", metavar="PATTERN", help="rows, run again")
    parser.add_argument("--write", action="store_true", help="write the results and the guide")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of a cell")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
