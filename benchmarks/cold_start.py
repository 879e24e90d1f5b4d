"""Seconds from the start of a process to the first token of an artifact, in phases.

SmolLM2-135M in bf16 is compiled into an artifact once. Each round then starts two processes, one
after the other: ``graphgen generate`` on the artifact, with all files in the page cache, and
Python that imports JAX and asks for its devices, which graphgen does on its way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.rows import Row, table, write_json

GOAL_S = 1.5
PROMPT = "The capital of France is"
COMMAND = (sys.executable, "-c", "from graphgen.cli.main import main; main()", "generate")
JAX = (sys.executable, "-c", "import jax; jax.devices('cpu')")
# In the order in which they happen.
PHASES = (
    "imports",
    "opening and checks",
    "JAX",
    "tokenizer",
    "rest of weights",
    "programs",
    "first token",
)


def answered(model: str, *options: str) -> Mapping[str, object]:
    """The timings that ``graphgen generate`` gives of an answer of one token."""
    command = [*COMMAND, model, "--prompt", PROMPT, "--max-new-tokens", "1", "--json", *options]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(run.stdout)["timings"]


def phases_of(timings: Mapping[str, object]) -> dict[str, float]:
    """Seconds of each phase; what no other phase has, from the start on, are imports."""
    opening = timings["phases_s"]
    assert isinstance(opening, dict)
    known = {
        **opening,
        "programs": _number(timings, "compile_s"),
        "first token": _number(timings, "ttft_ms") / 1e3,
    }
    rest = _number(timings, "cold_start_s") - sum(known.values())
    return {name: {"imports": rest, **known}[name] for name in PHASES}


def _number(timings: Mapping[str, object], name: str) -> float:
    value = timings[name]
    assert isinstance(value, int | float)
    return float(value)


def row_of(starts: list[Mapping[str, object]], jax_s: float) -> Row:
    """The best start and its phases, beside the start of JAX alone."""
    best = min(starts, key=lambda timings: _number(timings, "cold_start_s"))
    cold = _number(best, "cold_start_s")
    worst = max(_number(timings, "cold_start_s") for timings in starts)
    extra: dict[str, int | float | str] = {"goal_s": GOAL_S, "worst_s": worst, **phases_of(best)}
    return Row("bf16.b1.cold_start", cold, "JAX alone", jax_s, extra)


def measure(model: str, rounds: int) -> Row:
    """Start processes in turns."""
    starts: list[Mapping[str, object]] = []
    jax_s = float("inf")
    for _ in range(rounds):
        starts.append(answered(model))
        began = time.perf_counter()
        subprocess.run(JAX, stderr=subprocess.DEVNULL, check=True)
        jax_s = min(jax_s, time.perf_counter() - began)
    return row_of(starts, jax_s)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="starts (default 5)")
    parser.add_argument("--artifact", type=Path, help="of SmolLM2 in bf16; made if not there")
    parser.add_argument("--alone", action="store_true", help="let other work wait; needs root")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = str(given.artifact or Path(folder) / "artifact")
        answered("smollm2", "--dtype", "bf16", "--artifact", model)
        if given.alone:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        rows = [measure(model, given.rounds)]
    print(table(rows, ("goal_s", "worst_s", *PHASES)))
    if given.json:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
