"""Count false alarms: right pipelines over random combinations of features that validation flags.

    python -m benchmarks.false_alarms             # 4,000 runs; goes on where it was stopped
    python -m benchmarks.false_alarms --runs 100 --first 5000 --json alarms.json

Run n draws a cell of the matrix (family, ranks, types, weights, caches, sampling, target, ...) and
the seed of its arrays from n alone, and validates every pass of its pipeline, with ``--rewrites``
each rewrite alone as well. The passes are right, so each verdict that is wrong, unknown or not
covered is a false alarm, or a defect that nobody has found. Rewrites whose counterexample no call
was found to reach (``searched``) are counted beside.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from graphgen.atomic_write import write_whole
from graphgen.version import __version__
from tests.json_lines import JsonLines

if TYPE_CHECKING:
    from graphgen.passes.validate.verdict import Verdict

RESULTS = Path(__file__).resolve().parents[1] / ".cache" / "false_alarms.jsonl"
RUNS = 4000
# The element types of the runs; a run in f16 is one more rounding of the same kind.
DTYPES = ("f32", "bf16")

# The fields of a result: number, cell, seed, seconds, alarms (texts), error, rewrites, searched.
Result = Mapping[str, object]


def draw(number: int) -> tuple[Mapping[str, str], int]:
    """The cell and the seed of a run."""
    from tests.matrix.axes import AXES
    from tests.matrix.holes import hole_of

    random = Random(number)
    while True:
        cell = {axis: random.choice(values) for axis, values in AXES.items()}
        # Plans for several ranks take longest: half of the runs have one.
        cell["ranks"] = random.choice(("1", "1", "1", *AXES["ranks"][1:]))
        cell["dtype"] = random.choice(DTYPES)
        if hole_of(cell) is None:
            return cell, random.randrange(1 << 30)


def run(number: int, *, rewrites_alone: bool = False) -> Result:
    """Validate one pipeline; an exception is recorded as an error.

    Args:
        number: of the run.
        rewrites_alone: whether each rewrite is checked alone as well.
    """
    from graphgen.passes.validate import PassChecks, validate
    from tests.matrix.axes import label
    from tests.matrix.cells import cell_run

    cell, seed = draw(number)
    start, alarms, error = time.monotonic(), list[str](), ""
    rewrites = searched = 0
    try:
        # Of four runs three have one layer, which makes them twice as fast. The first layers of
        # some families have no experts to divide over groups of ranks.
        one_layer = number % 4 != 0 and cell["groups of experts"] == "1"
        made = cell_run(cell, seed, one_layer=one_layer)
        workload = replace(made.workload, seed=seed)
        checks = PassChecks(each_rewrite=rewrites_alone)
        for verdict in validate(made.module, made.passes, workload, checks):
            if verdict.rewrites is not None:
                rewrites += verdict.rewrites.total
                searched += verdict.rewrites.searched
            if _flagged(verdict, cell):
                alarms.append(_alarm(verdict))
    except Exception as raised:  # one run that fails must not lose the others
        error = f"{type(raised).__name__}: {raised}"
    seconds = round(time.monotonic() - start, 2)
    return {
        "number": number,
        "cell": label(cell),
        "seed": seed,
        "seconds": seconds,
        "alarms": alarms,
        "error": error,
        "rewrites": rewrites,
        "searched": searched,
    }


def _alarm(verdict: Verdict) -> str:
    """What a verdict says, on one line."""
    begin = f"{verdict.state}: {verdict.pass_text}:"
    if verdict.raised is not None:
        return f"{begin} {verdict.raised.failure.what}"
    if verdict.passed or not verdict.rewrites_right:
        found = verdict.rewrites.remarkable if verdict.rewrites is not None else []
        return f"{begin} {'; '.join(str(one) for one in found)} {verdict.uncovered or ''}"
    return (
        f"{begin} meaning {verdict.meaning.relative:.1e},"
        f" rounding {verdict.rounding.relative:.1e} of {verdict.budget:.1e}"
    )


def _flagged(verdict: Verdict, cell: Mapping[str, str]) -> bool:
    """Whether a verdict says that something is wrong.

    No script launches several steps of a program that begins to choose tokens in the pipeline, or
    whose tokens rounding may change: programs of such launches are not run.
    """
    left_open = verdict.left_open - {"searched"}
    if cell["launches"] != "one step":
        left_open -= {"not-covered"}
    return not verdict.passed or bool(left_open)


def report(results: Sequence[Result]) -> dict[str, object]:
    """Counts, and every run that is not right."""
    wrong = [result for result in results if result["alarms"] or result["error"]]
    seconds = sum(float(str(result["seconds"])) for result in results)
    return {
        "runs": len(results),
        "alarms": sum(bool(result["alarms"]) for result in results),
        "errors": sum(bool(result["error"]) for result in results),
        "rewrites": sum(int(str(result.get("rewrites", 0))) for result in results),
        "searched": sum(int(str(result.get("searched", 0))) for result in results),
        "seconds": round(seconds, 1),
        "wrong": wrong,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs that the file lacks; returns 0 if none was flagged."""
    args = _parser().parse_args(arguments)
    wanted = range(args.first, args.first + args.runs)
    file = JsonLines(args.results)
    known: dict[int, Result] = {int(str(row["number"])): row for row in file.read()}
    waiting = [number for number in wanted if number not in known]
    for count, number in enumerate(waiting, 1):
        row = known[number] = run(number, rewrites_alone=args.rewrites)
        if row["alarms"] or row["error"]:
            print(f"run {number}, {row['cell']}: {row['alarms'] or row['error']}", file=sys.stderr)
        if file.write_in_time(known.values(), last=count == len(waiting)):
            print(f"{count} of {len(waiting)} runs", file=sys.stderr, flush=True)
    found = report([known[number] for number in wanted])
    text = json.dumps(found, indent=1)
    if args.json:
        write_whole(args.json, f"{text}\n".encode())
    print(text)
    if args.record:
        record(args.record, args.revision, wanted, found)
    return 1 if found["wrong"] else 0


def record(path: Path, revision: str, numbers: range, found: Mapping[str, object]) -> None:
    """Add the outcome of a stretch of runs to a file of such outcomes, a line each.

    Args:
        path: the file; a line of the same revision and first run is replaced.
        revision: of the program that was run.
        numbers: of the runs.
        found: their report.
    """
    row: dict[str, object] = {"revision": revision, "first": numbers[0], **found}
    file = JsonLines(path)
    others = [
        known
        for known in file.read()
        if (known["revision"], known["first"]) != (row["revision"], row["first"])
    ]
    file.write([*others, row])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.false_alarms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--runs", type=int, default=RUNS, help="how many runs")
    add("--first", type=int, default=0, help="number of the first run")
    add("--rewrites", action="store_true", help="check each rewrite alone, too")
    add("--results", type=Path, default=RESULTS, help="file of JSON lines to go on with")
    add("--json", type=Path, help="write the report to a file, too")
    add("--record", type=Path, help="add the report as a line to a file, such as results/*.jsonl")
    add("--revision", default=__version__, help="of the program, in that line")
    return parser


if __name__ == "__main__":
    sys.exit(main())
