"""How even are decode steps, and does memory stay flat, over 10,000 steps of SmolLM2-135M?

One session; rows get a prompt, are decoded greedily to the end of the cache, and begin again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.comparison.interfaces import Case
from benchmarks.comparison.session_programs import SETTINGS, session_of
from benchmarks.real_time_priority import at_real_time, threads_of
from benchmarks.rows import Row, table, write_json
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.session.session import Session

# Steps before the first one that counts.
WARM = 50
CASES = [Case("bf16", 1, 128), Case("bf16", 8, 128), Case("f32", 1, 128), Case("int8", 1, 128)]


def step_times(session: Session, case: Case, steps: int) -> Iterator[float]:
    """Seconds of each decode step; prefills in between are not among them."""
    rng = np.random.default_rng(0)
    tokens: npt.NDArray[np.intp] = np.zeros(case.batch, np.intp)
    for step in range(steps):
        if step % (case.slots - case.prompt) == 0:
            session.reset()
            prompts = rng.integers(5, 49000, (case.batch, case.prompt))
            tokens = session.prefill(prompts.tolist()).argmax(-1)
        start = time.perf_counter()
        tokens = session.decode(tokens.tolist()).argmax(-1)
        yield time.perf_counter() - start


def resident() -> int:
    """Bytes of this process in memory."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))


def row_of(case: Case, times: npt.NDArray[np.float64], before: int, after: int) -> Row:
    """p99 beside p50, and memory at the beginning and at the end."""
    middle, late, worst = np.percentile(times, (50, 99, 100))
    extra: dict[str, int | float | str] = {
        "p99_over_p50": float(late / middle),
        "max_s": float(worst),
        "steps": len(times),
        "rss_mb": before / 1e6,
        "rss_end_mb": after / 1e6,
    }
    return Row(f"{case.name}.step.p99", float(late), "p50 of the same", float(middle), extra)


def measure(checkpoint: Checkpoint, case: Case, steps: int, alone: bool) -> Row:
    """Run a case."""
    settings = SETTINGS[case.weights].serving(batch=case.batch, max_len=case.slots)
    session = session_of(checkpoint, settings)
    list(step_times(session, case, WARM))
    times = np.zeros(steps)
    before = resident()
    with at_real_time(threads_of() if alone else ()):
        for index, seconds in enumerate(step_times(session, case, steps)):
            times[index] = seconds
    return row_of(case, times, before, resident())


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a case, e.g. bf16.b1.p128; repeatable")
    parser.add_argument("--steps", type=int, default=10_000, help="of each case (default 10000)")
    parser.add_argument("--alone", action="store_true", help="let other work wait; needs root")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    path = locate("smollm2")
    assert path is not None
    checkpoint = open_checkpoint(path)
    rows: list[Row] = []
    for case in CASES:
        if options.only and case.name not in options.only:
            continue
        print(f"measuring {case.name} ...", file=sys.stderr, flush=True)
        rows.append(measure(checkpoint, case, options.steps, options.alone))
    print(table(rows, ("p99_over_p50", "max_s", "steps", "rss_mb", "rss_end_mb")))
    if options.json:
        write_json(rows, options.json)


if __name__ == "__main__":
    main()
