"""Print the work of compilations beside what is recorded, and record it.

python -m tests.compile_work              # old and new counts that differ
python -m tests.compile_work --update     # and write counts.json; the commit says why
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.compile_work.count_work import (
    COMPILATIONS,
    COUNTS_CALLS,
    ROOT,
    Work,
    comparable,
    increases,
    work_of,
)

COUNTS = Path(__file__).with_name("counts.json")


def recorded() -> dict[str, Work]:
    """The counts in the file, by model."""
    return json.loads(COUNTS.read_text("utf-8")) if COUNTS.exists() else {}


def counted() -> dict[str, Work]:
    """The counts of this tree, from a process of its own in which no table is filled yet."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GRAPHGEN_")}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.compile_work", "--child"],
        cwd=ROOT,
        env={**plain, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)


def table(before: Mapping[str, Work], now: Mapping[str, Work]) -> str:
    """A line for each count that differs: model, step, kind, old, new."""
    lines: list[str] = []
    for model in dict.fromkeys([*before, *now]):
        old, new = before.get(model, {}), now.get(model, {})
        for step in dict.fromkeys([*old, *new]):
            first, second = old.get(step, {}), new.get(step, {})
            for kind in dict.fromkeys([*first, *second]):
                counts = first.get(kind, 0), second.get(kind, 0)
                if counts[0] != counts[1]:
                    lines.append(f"{model:18} {step:26} {kind:9} {counts[0]:>9} {counts[1]:>9}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line; see the module's own text."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.compile_work")
    parser.add_argument("--update", action="store_true", help="write counts.json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        json.dump({name: work_of(item) for name, item in COMPILATIONS.items()}, sys.stdout)
        return
    if options.update and not COUNTS_CALLS:
        parser.error("calls are counted by Python 3.11 alone: record with it")
    before, now = comparable(recorded()), comparable(counted())
    print(table(before, now) or "as recorded")
    for line in increases(before, now):
        print(f"more than 2 %: {line}")
    if options.update:
        COUNTS.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
