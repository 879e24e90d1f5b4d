"""Does the simulator of steps say what ranks over several processes take on this machine?

Decode steps of SmolLM2-135M in f32, tp = processes, each process pinned to one core with one
thread. Figures of the simulator are those of small programs: ops alone, each in one process a core,
and collectives of two processes. No step of a model is among them. With more processes than cores,
several share one, which the simulator does, too. Measured: the median of the steps of process 0.
Of everything, the least of three runs counts, as other work on the machine only makes it slower.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.real_time_priority import at_real_time, threads_of
from benchmarks.simulation.model_steps import decode_program
from benchmarks.simulation.pinned_processes import cores, run_pinned
from benchmarks.simulation.step_simulation import (
    HostFigures,
    SimulatedStep,
    chrome_trace,
    program_tasks,
    simulate_step,
)

MICRO = "benchmarks.simulation.micro_programs"
DTYPE = "f32"
# Elements of the small and the large collective that the cost of a byte follows from.
_SMALL, _LARGE = 576, 49152
# Runs of each measurement.
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """A step as simulated and as measured.

    Attributes:
        processes: ranks, each a process.
        cores: that they share.
        simulated, measured: seconds.
        fast: seconds that a tenth of the measured steps stay below.
    """

    processes: int
    cores: int
    simulated: float
    measured: float
    fast: float

    @property
    def ratio(self) -> float:
        """Simulated over measured."""
        return self.simulated / self.measured


def _shared_figures() -> HostFigures:
    """Figures without ops: kernels and launches, collectives of two processes with a core each.

    An all-reduce of two has two rounds with half of the bytes each, an all-gather has one.
    """
    kernel = _least(f"{MICRO}:kernels", 1, size=576)
    few, many = (_least(f"{MICRO}:launches", 1, arguments=n) for n in (16, 256))
    argument = (many - few) / 240

    def exchanged(op: str, elements: int) -> float:
        return _least(f"{MICRO}:collectives", 2, op=op, elements=elements)

    twice, once = exchanged("all_reduce", _SMALL), exchanged("all_gather", _SMALL)
    more = exchanged("all_gather", _LARGE) - once
    byte = max(0.0, more / (4 * (_LARGE - _SMALL)))
    turn = max(0.0, twice - once)
    empty = max(0.0, turn - 2 * _SMALL * byte)
    return HostFigures(
        {}, kernel, few - 16 * argument, argument, max(0.0, once - turn), empty, byte
    )


def _least(task: str, count: int, **options: int | str) -> float:
    """The least of a few runs, of the mean of their processes: the one that was disturbed least."""
    return min(fmean(map(_first, run_pinned(task, count, 0, **options))) for _ in range(REPEATS))


def _first(result: Any) -> float:
    return result[0] if isinstance(result, list) else result


def host_figures(ranks: int, shared: HostFigures) -> HostFigures:
    """Figures of this machine for the program of a number of ranks; nothing of a model is run."""
    together, task = min(ranks, len(cores())), "benchmarks.simulation.single_ops:op_seconds"
    timed: list[dict[str, float]] = []
    for _ in range(REPEATS):
        each = run_pinned(task, together, ranks=ranks, dtype=DTYPE)
        timed.append({key: fmean(item[key] for item in each) for key in each[0]})
    ops = {key: min(item[key] for item in timed) for key in timed[0]}
    return replace(shared, ops=ops)


def simulated(ranks: int, shared: HostFigures) -> SimulatedStep:
    """A step of the decode program of a number of ranks."""
    _, function = decode_program(DTYPE, ranks)
    tasks = [*program_tasks(function, host_figures(ranks, shared))]
    return simulate_step(tasks, ranks, len(cores()))


def measured(ranks: int, steps: int) -> tuple[float, float]:
    """The median step of the run that was disturbed least, and what a tenth of all stay below."""
    task = "benchmarks.simulation.model_steps:decode_seconds"
    runs: list[list[float]] = [
        sorted(run_pinned(task, ranks, dtype=DTYPE, steps=steps)[0]) for _ in range(REPEATS)
    ]
    every = sorted(seconds for run in runs for seconds in run)
    return min(run[len(run) // 2] for run in runs), every[len(every) // 10]


def table(rows: list[Comparison]) -> str:
    """The comparisons as text."""
    head = "processes a core simulated ms measured ms   p10 ms ratio"
    return "\n".join([head, *map(_line, rows)])


def _line(row: Comparison) -> str:
    times = (1e3 * row.simulated, 1e3 * row.measured, 1e3 * row.fast)
    shown = f"{times[0]:>12.2f} {times[1]:>11.2f} {times[2]:>8.2f}"
    return f"{row.processes:>9} {row.processes / row.cores:>6.1f} {shown} {row.ratio:>5.2f}"


def main() -> None:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, action="append", help="default: 1, 2, 4 and 8")
    parser.add_argument("--steps", type=int, default=60, help="measured (default 60)")
    parser.add_argument("--alone", action="store_true", help="let other work wait; needs root")
    parser.add_argument("--trace", type=Path, help="write the last simulated step for Chrome")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    rows: list[Comparison] = []
    # Processes inherit the priority.
    with at_real_time(threads_of() if options.alone else ()):
        shared = _shared_figures()
        print(json.dumps(asdict(shared)), file=sys.stderr)
        for count in options.processes or (1, 2, 4, 8):
            print(f"{count} processes ...", file=sys.stderr, flush=True)
            step = simulated(count, shared)
            middle, fast = measured(count, options.steps)
            rows.append(Comparison(count, min(count, len(cores())), step.seconds, middle, fast))
            if options.trace:
                options.trace.write_text(chrome_trace(step))
    print(table(rows))
    if options.json:
        shown = [{**asdict(row), "ratio": row.ratio} for row in rows]
        options.json.write_text(json.dumps(shown, indent=1) + "\n")


if __name__ == "__main__":
    main()
