"""Count by kind how many planted miscompiles validation finds, and how many it blames exactly.

    python -m benchmarks.planted                        # all kinds, two minutes
    python -m benchmarks.planted --only integers,masks --json planted.json

The faults are the tables of ``tests/planted``. Each has a right twin, and one that is not
called ``ok`` is an alarm. The column *reports* counts faults that are modelled on a public one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from graphgen.atomic_write import write_whole
from graphgen.version import __version__
from tests.json_lines import JsonLines
from tests.planted.faults import Judgement, Row

TABLES = Path(__file__).resolve().parents[1] / "tests" / "planted"

# The fields of a kind: kind, faults, found, blamed, reports, alarms, seconds, missed (texts).
Result = Mapping[str, object]


def kinds() -> list[str]:
    """The kinds that have a table, by name."""
    return sorted(
        path.stem.removeprefix("test_")
        for path in TABLES.glob("test_*.py")
        if "\nFAULTS: " in path.read_text(encoding="utf-8")
    )


def faults_of(kind: str) -> Sequence[Row]:
    """The table of a kind."""
    return import_module(f"tests.planted.test_{kind}").FAULTS


def judged(row: Row, *, right: bool = False) -> Judgement:
    """The judgement of a fault or its right twin; an exception or a warning finds nothing."""
    try:
        with warnings.catch_warnings():
            # As in the tests: a warning of NumPy says that numbers were lost.
            warnings.simplefilter("error")
            return row.judge(right=right)
    except Exception as raised:  # one row that fails must not lose the others
        said = f"raised {type(raised).__name__}: {raised}"
        return Judgement(found=False, blamed=False, said=said)


def count(kind: str, rows: Sequence[Row]) -> Result:
    """Judge the faults of a kind and their right twins."""
    start, found, blamed = time.monotonic(), 0, 0
    missed, alarms = list[str](), list[str]()
    for row in rows:
        wrong, right = judged(row), judged(row, right=True)
        found += wrong.found
        blamed += wrong.found and wrong.blamed
        if not (wrong.found and wrong.blamed):
            missed.append(f"{row.name}: {wrong.said}")
        if right.found or right.said != "ok":
            alarms.append(f"{row.name}: {right.said}")
    return {
        "kind": kind,
        "faults": len(rows),
        "reports": sum(bool(row.report) for row in rows),
        "found": found,
        "blamed": blamed,
        "missed": missed,
        "alarms": alarms,
        "seconds": round(time.monotonic() - start, 1),
    }


def table(results: Sequence[Result]) -> Iterator[str]:
    """The lines of a table, with a total, then what was missed."""
    columns = ("faults", "reports", "found", "blamed")
    widest = max(len(str(result["kind"])) for result in results)
    yield "  ".join(["kind".ljust(widest), *columns, "alarms", "seconds"])

    def line(name: str, values: Sequence[object]) -> str:
        names = (*columns, "alarms", "seconds")
        cells = [str(v).rjust(len(n)) for v, n in zip(values, names, strict=True)]
        return "  ".join([name.ljust(widest), *cells])

    for result in results:
        alarms = len(_texts(result, "alarms"))
        values = [*(result[column] for column in columns), alarms, result["seconds"]]
        yield line(str(result["kind"]), values)
    totals = [sum(int(str(result[column])) for result in results) for column in columns]
    alarms = sum(len(_texts(result, "alarms")) for result in results)
    seconds = round(sum(float(str(result["seconds"])) for result in results), 1)
    yield line("all", [*totals, alarms, seconds])
    for result in results:
        yield from (f"not found or blamed: {result['kind']}: {x}" for x in _texts(result, "missed"))
        yield from (f"alarm: {result['kind']}: {x}" for x in _texts(result, "alarms"))


def _texts(result: Result, key: str) -> list[str]:
    found = result[key]
    assert isinstance(found, list)
    return [str(text) for text in found]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def record(path: Path, revision: str, results: Sequence[Result]) -> None:
    """Add the outcome of each kind to a file of such outcomes, a line each.

    Args:
        path: the file; a line of the same revision and kind is replaced.
        revision: of the program that was run.
        results: of the kinds.
    """
    rows: list[Mapping[str, object]] = [{"revision": revision, **result} for result in results]
    file, ours = JsonLines(path), {(row["revision"], row["kind"]) for row in rows}
    others = [row for row in file.read() if (row["revision"], row["kind"]) not in ours]
    file.write([*others, *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns 0 if all faults are found and blamed, and no right twin is."""
    args = _parser().parse_args(arguments)
    chosen = args.only.split(",") if args.only else kinds()
    results: list[Result] = []
    for kind in chosen:
        results.append(count(kind, faults_of(kind)))
        print(f"{kind}: {results[-1]['found']} of {results[-1]['faults']}", file=sys.stderr)
    print(*table(results), sep="\n")
    if args.json:
        write_whole(args.json, f"{json.dumps(results, indent=1)}\n".encode())
    if args.record:
        record(args.record, args.revision, results)
    return 1 if any(result["missed"] or result["alarms"] for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", default="", help="kinds to run, such as integers,masks")
    add("--json", type=Path, help="write the results to a file, too")
    add("--record", type=Path, help="add a line a kind to a file, such as results/planted.jsonl")
    add("--revision", default=__version__, help="of the program, in these lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
