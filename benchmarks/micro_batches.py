"""Seconds of prompts that go through two stages of a pipeline: several at a time, or one by one.

Two processes have a stage each, a core each and a thread each. A prefill program takes one prompt,
so that a step of several has as many groups of rows; both ways take turns and have to give the same
logits. With groups in flight N of them take N + 1 turns of a stage instead of 2 N.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Row, table, write_json
from benchmarks.simulation.pinned_processes import run_pinned
from graphgen.config.compile_config import CompileConfig
from graphgen.lowering.cpu.pjrt import configure
from graphgen.lowering.cpu.processes import join_processes, share_ranks
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import put_weights, weights_of

STAGES, START = 2, 300
TASK = "benchmarks.micro_batches:measure"


class Watcher:
    """An observer, for which each group of rows is read before the next one starts."""

    def before_launch(self, session: Session, program: str, inputs: Any) -> None:
        """Do nothing."""

    def after_launch(self, session: Session, program: str) -> None:
        """Do nothing."""


def measure(given: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of each round, by the way in which the prompts go; in each process."""
    store = join_processes(given["address"], given["count"], given["index"], START)
    configure(share_ranks(1, STAGES))
    session = _session(Path(given["model"]), given["prompts"], given["tokens"])
    random = np.random.default_rng(0)
    prompts = random.integers(5, 4096, (given["prompts"], given["tokens"])).tolist()
    session.prefill(prompts)
    seconds: dict[str, list[float]] = {"in flight": [], "one by one": []}
    for number in range(given["rounds"]):
        found: list[Any] = []
        for way, times in seconds.items():
            session.observers[:] = [Watcher()] if way == "one by one" else []
            session.reset()
            store.barrier(f"{way} {number}", START)
            start = time.perf_counter()
            found.append(session.prefill(prompts))
            times.append(time.perf_counter() - start)
        np.testing.assert_array_equal(*found)
    return seconds


def _session(path: Path, rows: int, tokens: int) -> Session:
    """The stage of this process."""
    config = CompileConfig(dtype="f32", pp_degree=STAGES, prefill_batch=(1,))
    checkpoint = open_checkpoint(path)
    built = build_model(checkpoint.config, config.serving(batch=rows, max_len=tokens))
    weights = put_weights(weights_of(checkpoint, built.module), Silent())
    return Session(ExecutableCache(built.module, Silent()), weights)


def _ratio_of_medians(seconds: dict[str, list[float]]) -> float:
    return float(np.median(seconds["one by one"]) / np.median(seconds["in flight"]))


def main() -> None:
    """Measure SmolLM2-135M in f32, and print a row for each number of prompts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: list[Row] = []
    for count in given.prompts:
        path, rounds = str(locate("smollm2")), given.rounds
        sizes = {"prompts": count, "tokens": given.tokens, "rounds": rounds}
        first, *_ = run_pinned(TASK, STAGES, model=path, **sizes)
        best = {way: min(times) for way, times in first.items()}
        rows.append(
            Row(
                f"f32.prompts{count}",
                best["in flight"],
                "one by one",
                best["one by one"],
                {"of medians": _ratio_of_medians(first)},
            )
        )
    print(table(rows, ["of medians"]))
    if given.json:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
