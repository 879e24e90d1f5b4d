"""Run prefill and decode of every family's mini models on IREE, and compare with NumPy.

    python -m tests.matrix.iree             # goes on where it was interrupted
    python -m tests.matrix.iree --limit 4

Results are lines of JSON in a file. They hold until a source of the packages or IREE's version
changes. What IREE refuses is listed by reason. The exit code is 0 when every program was tried, and
each that IREE takes is right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.exec import NumpyBackend, run_program
from graphgen.exec.bind import bind_module, isolate
from graphgen.exec.inputs import program_inputs
from graphgen.ir import Function, Module
from graphgen.ir.dtype import f32
from graphgen.lowering.backends.named import backend_called, has_iree
from graphgen.models import SHAPES
from graphgen.models.registry import build
from tests.json_lines import JsonLines, digest_of
from tests.oracles.minis import MINIS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".cache" / "iree.jsonl"
SOURCES = ("graphgen", "passes", "lowering")
SIZES = {"B": 2, "S": 4, "R": 2, "C": 8, "M": 8}
# The largest difference, relative to the largest number of an output.
BUDGET = 2e-5
RIGHT, WRONG, REFUSED = "right", "wrong", "refused"


def mini_programs(name: str) -> list[tuple[Module, Function]]:
    """The programs of a mini model with every size bound, each in a module of its own."""
    module = build(SHAPES[name], f32, mini=True)
    bound = [(bind_module(isolate(module, each), SIZES), each.name) for each in module.programs()]
    return [(alone, alone.function(program)) for alone, program in bound]


def iree_difference(module: Module, function: Function) -> float:
    """The largest difference of IREE from NumPy, relative to the largest number of its output.

    Raises:
        GraphgenError: GG0401 where IREE refuses the program.
    """
    given = program_inputs(module, function, {}, 0, per_rank=False).shared
    wanted = run_program(module, function, given, NumpyBackend())
    found = run_program(module, function, given, backend_called("iree"))
    worst = 0.0
    for one, other in zip(wanted, found, strict=True):
        expected, made = (np.asarray(each.array, np.float64) for each in (one, other))
        scale = max(float(np.abs(expected).max(initial=0.0)), 1e-3)
        worst = max(worst, float(np.abs(made - expected).max(initial=0.0)) / scale)
    return worst


def tried(module: Module, function: Function) -> Mapping[str, object]:
    """The result of one program, also where IREE refuses it."""
    start = time.monotonic()
    difference, error, state = float("nan"), "", REFUSED
    try:
        difference = iree_difference(module, function)
        state = RIGHT if difference <= BUDGET else WRONG
    except GraphgenError as raised:
        error = raised.what
        if raised.code != "GG0401":
            state = WRONG
    seconds = round(time.monotonic() - start, 2)
    return {"state": state, "difference": difference, "error": error, "seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the programs without a result; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.iree", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to go on with")
    parser.add_argument("--limit", type=int, help="models to run at most this time")
    args = parser.parse_args(arguments)
    if not has_iree():
        print("IREE is not installed: nothing was tried")
        return 0
    file, digest = JsonLines(args.results), digest_of(ROOT, SOURCES) + version("iree-base-compiler")
    known = {str(row["program"]): row for row in file.read() if row["digest"] == digest}
    done = {name.partition(" ")[0] for name in known}
    waiting = [name for name in MINIS if name not in done][: args.limit]
    for name in waiting:
        for module, function in mini_programs(name):
            program = f"{name} {function.name}"
            row = {"program": program, "digest": digest, **tried(module, function)}
            known[program] = row
            shown = row["error"] or row["difference"]
            print(f"{program}: {row['state']}, {shown}", file=sys.stderr, flush=True)
        file.write(known.values())
    return _report(list(known.values()), len(MINIS) - len(done) - len(waiting))


def _report(rows: Sequence[Mapping[str, object]], left: int) -> int:
    states = Counter(str(row["state"]) for row in rows)
    for reason, count in Counter(str(r["error"]) for r in rows if r["error"]).most_common():
        print(f"{count} refused: {reason}")
    for row in rows:
        if row["state"] == WRONG:
            print(f"{row['program']}: {row['error'] or row['difference']}")
    counts = ", ".join(f"{states[state]} {state}" for state in (RIGHT, WRONG, REFUSED))
    print(f"IREE: {len(rows)} programs tried, {counts}; {left} models left")
    return 1 if left or states[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main())
