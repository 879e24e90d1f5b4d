"""Prove cells of the matrix from the model to the programs, and count what is proved by value.

    python -m tests.matrix.proofs                     # each value alone; goes on where it stopped
    python -m tests.matrix.proofs --strength 2        # the cells in which every pair occurs
    python -m tests.matrix.proofs --pairs --one-in 100  # pairs with all else plain, a sample
    python -m tests.matrix.proofs --only caches,experts --again

Each row of the table is a value of an axis, with the outputs and states of the cells that have it:
proved, equal in real arithmetic, equal but for numbers in the narrow types that the cell asks for,
unknown and refuted, and seconds of CPU time. The exit code is 0 when every cell was run, nothing is
refuted, and all is proved in one of these ways of the cells without a value that is open.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from pathlib import Path

from graphgen.ir import DType, dtype
from graphgen.passes.equiv.refute import with_counterexamples
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.refinement_result import Claim
from tests.json_lines import JsonLines, digest_of
from tests.matrix.axes import AXES, Cell, label
from tests.matrix.cells import cell_run, compiled
from tests.matrix.covering import covering_cells
from tests.matrix.holes import hole_of

RESULTS = Path(__file__).resolve().parents[2] / ".cache" / "matrix-proofs.jsonl"
# Values that ask for numbers in narrow types, with these.
NARROW: Mapping[str, Mapping[str, str]] = {
    "weights": {
        "int8 a channel": "s8",
        "int8 a tensor": "s8",
        "int4 in groups": "s4",
        "f8e4m3": "f8e4m3fn",
        "f8e5m2": "f8e5m2",
    },
    "numbers of caches": {
        "f8e4m3 cast": "f8e4m3",
        "f8e5m2 cast": "f8e5m2",
        "f8e4m3fn cast": "f8e4m3fn",
        "int8 a token": "s8",
        "f8e5m2 a token": "f8e5m2",
        "int8 a channel": "s8",
        "f8e4m3 a tensor": "f8e4m3",
        "f8e4m3 a key": "f8e4m3",
    },
    "sums over ranks": {"f16": "f16"},
    "attention": {"f16": "f16"},
    "softmax": {"bf16": "bf16", "f16": "f16"},
    "numbers of logits": {"f16": "f16"},
    "activations": dict.fromkeys(("dynamic", "static", "in blocks"), "s8"),
}
# Values with which something is not proved yet, and why.
OPEN: Mapping[str, Mapping[str, str]] = {
    "caches": {"rolled": "the cache forgets what the model's holds"},
    "groups of experts": dict.fromkeys("23", "blocks of the experts of a group have no rule"),
    "ranks of a prompt": {"2, in a balanced ring": "ranks hold tokens that are not side by side"},
    "tiles of attention": {"3x5": "tiles that a mask hides are left out"},
}
# Two ranks, and rows that groups may share: most options mean nothing on one rank.
BASE: Cell = {axis: values[0] for axis, values in AXES.items()} | {"ranks": "2", "rows": "4"}
COUNTS = ("proved", "real", "narrow", "unknown", "refuted")

# cell, the counts, seconds, error, reasons (each with how many, and its first place).
Row = Mapping[str, object]


def alone(axis: str, value: str) -> Cell | None:
    """The cell with a value that differs least from :data:`BASE`; ``None`` if there is none."""
    return nearest({axis: value})


def nearest(values: Cell) -> Cell | None:
    """The cell with some values that differs least from :data:`BASE`; ``None`` without one."""
    waiting = deque([({**BASE, **values}, frozenset(values))])
    while waiting:
        cell, fixed = waiting.popleft()
        hole = hole_of(cell)
        if hole is None:
            return cell
        for other in hole.axes:
            if other not in fixed:
                waiting += [
                    ({**cell, other: instead}, fixed | {other})
                    for instead in AXES[other]
                    if instead != cell[other]
                ]
    return None


def is_open(cell: Cell) -> bool:
    """Whether a cell has a value with which something is not proved yet."""
    return any(cell[axis] in values for axis, values in OPEN.items())


def narrow_types(cell: Cell) -> list[DType]:
    """The types that a cell asks numbers to be kept in."""
    names = {values[cell[axis]]: None for axis, values in NARROW.items() if cell[axis] in values}
    return [dtype(name) for name in names]


def cells_alone() -> list[Cell]:
    """A cell for each value of each axis."""
    found = [alone(axis, value) for axis, values in AXES.items() for value in values]
    return list({label(cell): cell for cell in found if cell is not None}.values())


def cells_of_pairs(one_in: int) -> list[Cell]:
    """A cell for each pair of values of two options, none of which is plain, or a sample of these.

    The families are no option. A pair that is in a hole whatever the others are has no cell.
    """
    options = [
        (axis, value)
        for axis, values in AXES.items()
        for value in values
        if axis != "family" and value != BASE[axis]
    ]
    pairs = [dict(pair) for pair in combinations(options, 2) if pair[0][0] != pair[1][0]]
    chosen = [pair for pair in pairs if in_sample({**BASE, **pair}, one_in)]
    found = [cell for pair in chosen if (cell := nearest(pair)) is not None]
    return list({label(cell): cell for cell in found}.values())


def in_sample(cell: Cell, one_in: int) -> bool:
    """Whether a cell is in the sample of one in so many, which no other cell decides."""
    return int(sha256(label(cell).encode()).hexdigest(), 16) % one_in == 0


def proved(cell: Cell, *, refute: bool) -> Row:
    """The verdicts on one cell.

    Args:
        cell: a value for each axis.
        refute: whether both programs are run on numbers where something is not proved.
    """
    start = time.process_time()
    claims: Sequence[Claim] = ()
    error = ""
    try:
        run = cell_run(cell)
        module = compiled(run)
        narrow = narrow_types(cell)
        found = prove_refinement(run.module, module, narrow)
        if refute:
            found = with_counterexamples(run.module, module, found, narrow=narrow)
        claims = found.claims
    except Exception as raised:  # any cell may find a defect; the others are run all the same
        error = f"{type(raised).__name__}: {str(raised).splitlines()[0] if str(raised) else ''}"
    counts = Counter(claim.status for claim in claims)
    lost = [c for c in claims if c.status in (Status.UNDECIDED, Status.REFUTED)]
    return {
        "cell": label(cell),
        "proved": counts[Status.PROVED],
        "real": counts[Status.REAL],
        "narrow": counts[Status.NARROW],
        "unknown": counts[Status.UNDECIDED],
        "refuted": counts[Status.REFUTED],
        "error": error,
        "seconds": round(time.process_time() - start, 1),
        "reasons": dict(Counter(claim.reason or claim.counterexample for claim in lost)),
        "places": {c.reason or c.counterexample: _place(c) for c in reversed(lost)},
    }


def _place(claim: Claim) -> str:
    pair = " | ".join(claim.pair) if any(claim.pair) else ""
    return f"@{claim.program} {claim.output} {pair}".strip()


@dataclass(frozen=True, slots=True)
class Report:
    """The results of some cells.

    Attributes:
        cells: those that were asked for, by label.
        rows: the results, of those that were run.
    """

    cells: Mapping[str, Cell]
    rows: Sequence[Row]

    def total(self, name: str) -> int:
        """The sum of a count over all cells."""
        return sum(int(str(row[name])) for row in self.rows)

    @property
    def share(self) -> float:
        """Of all outputs and states, those that are proved, also but for narrow numbers."""
        return self.share_of("proved", "real", "narrow")

    def share_of(self, *names: str) -> float:
        """The share of some counts in all outputs and states."""
        every = sum(map(self.total, COUNTS))
        return sum(map(self.total, names)) / every if every else 0.0

    @property
    def good(self) -> bool:
        """Whether every cell was run, and none is wrong."""
        return len(self.rows) == len(self.cells) and not any(map(self.is_wrong, self.rows))

    def is_wrong(self, row: Row) -> bool:
        """Whether a cell is refuted, was not run to its end, or is not proved and not open."""
        cell = self.cells[str(row["cell"])]
        lost = bool(row["unknown"]) and not is_open(cell)
        return bool(row["error"] or row["refuted"]) or lost

    def lines(self) -> Iterator[str]:
        """The table by value of an axis, the reasons, the errors and the total."""
        width = max(len(f"{axis} {value}") for axis, values in AXES.items() for value in values)
        yield "  ".join(["".ljust(width), *[f"{name:>7}" for name in (*COUNTS, "CPU s")]])
        for axis, values in AXES.items():
            for value in values:
                having = [r for r in self.rows if self.cells[str(r["cell"])][axis] == value]
                if having:
                    yield _line(f"{axis} {value}".ljust(width), having)
        yield _line("total".ljust(width), self.rows)
        reasons: Counter[str] = Counter()
        places: dict[str, str] = {}
        for row in self.rows:
            found, where = row["reasons"], row["places"]
            assert isinstance(found, dict)
            assert isinstance(where, dict)
            reasons.update(found)
            places = {why: f"{row['cell']}: {place}" for why, place in where.items()} | places
        for reason, count in reasons.most_common():
            yield f"{count:5d}  {reason} ({places[reason]})"
        yield from [f"wrong: {r['cell']}: {r['error']}" for r in self.rows if self.is_wrong(r)]
        real = self.share_of("proved", "real")
        proved = f"{self.share:.1%} proved, {real:.1%} without narrow numbers"
        yield f"{len(self.rows)} of {len(self.cells)} cells, {proved}"


def _line(head: str, rows: Iterable[Row]) -> str:
    rows = list(rows)
    sums = [sum(int(str(row[name])) for row in rows) for name in COUNTS]
    seconds = sum(float(str(row["seconds"])) for row in rows)
    return "  ".join([head, *[f"{count:7d}" for count in sums], f"{seconds:7.1f}"])


def run_proofs(cells: Sequence[Cell], file: JsonLines, digest: str, *, again: bool) -> Report:
    """Prove the cells without a result in the file.

    Args:
        cells: to prove.
        file: of results; those of another digest are dropped.
        digest: of the sources that results hold for.
        again: whether to prove those anew of which something is not proved.
    """
    known = {str(row["cell"]): row for row in file.read() if row["digest"] == digest}
    named = {label(cell): cell for cell in cells}
    waiting = [n for n in named if n not in known or (again and _is_lost(known[n]))]
    for number, name in enumerate(waiting, 1):
        row = known[name] = {**proved(named[name], refute=True), "digest": digest}
        counts = " ".join(str(row[count]) for count in COUNTS)
        told = f"{number}/{len(waiting)} {name}: {counts} {row['error']}"
        print(told, file=sys.stderr, flush=True)
        file.write_in_time(known.values(), last=number == len(waiting))
    return Report(named, [known[name] for name in named if name in known])


def _is_lost(row: Row) -> bool:
    return bool(row["error"] or row["unknown"] or row["refuted"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove cells; returns the exit code."""
    from tests.matrix.__main__ import ROOT, SOURCES

    parser = argparse.ArgumentParser(prog="python -m tests.matrix.proofs", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--strength", type=int, choices=(1, 2), default=1, help="values alone, or pairs")
    add("--pairs", action="store_true", help="a cell for each pair of options, all else plain")
    add("--only", default="", help="axes, with commas, whose other values than the first are run")
    add("--one-in", type=int, default=1, help="a sample: cells by the digest of their labels")
    add("--results", type=Path, default=RESULTS, help="file of JSON lines to go on with")
    add("--again", action="store_true", help="prove anew what is not proved")
    add("--keep", action="store_true", help="results also of sources that have changed")
    add("--json", action="store_true", help="print the rows as JSON")
    args = parser.parse_args(arguments)
    cells = cells_alone() if args.strength == 1 else list(covering_cells(2))
    axes = [axis for axis in args.only.split(",") if axis]
    if axes:
        cells = [cell for cell in cells if any(cell[axis] != BASE[axis] for axis in axes)]
    cells = [cell for cell in cells if in_sample(cell, args.one_in)]
    cells = cells_of_pairs(args.one_in) if args.pairs else cells
    digest = "any" if args.keep else digest_of(ROOT, SOURCES)
    report = run_proofs(cells, JsonLines(args.results), digest, again=args.again)
    print(
        json.dumps([dict(r) for r in report.rows], indent=1)
        if args.json
        else "\n".join(report.lines())
    )
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
