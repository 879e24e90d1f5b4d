"""What do int8 weights gain SmolLM2-135M on this CPU, beside the same programs on its own weights?

Both sides live in one process and take turns: prefill, then decode steps, case by case.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np

from benchmarks.generate import our_turn
from benchmarks.rows import Row, table, write_json
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import RankWeights, put_weights, read_weight

PROMPT = 128
INT8 = "quantize-weights"


def open_session(checkpoint: Checkpoint, dtype: str, batch: int, quantization: str) -> Session:
    """One side."""
    settings = CompileConfig(dtype=dtype, quantization=quantization).serving(
        batch=batch, max_len=2 * PROMPT
    )
    built = build_model(checkpoint.config, settings)
    source = RankWeights(built.module, lambda row: read_weight(checkpoint, row))
    return Session(ExecutableCache(built.module, Silent()), put_weights(source, Silent()))


def measure(checkpoint: Checkpoint, dtype: str, batch: int, rounds: int, steps: int) -> list[Row]:
    """Prefill and decode: of each side the best prefill, and the best median step."""
    prompts = np.random.default_rng(0).integers(5, 49000, (batch, PROMPT)).astype(np.int32)
    sides = [open_session(checkpoint, dtype, batch, kind) for kind in (INT8, "")]
    taken: list[list[tuple[float, float]]] = [[], []]
    for turn in range(rounds + 1):
        for side, times in zip(sides, taken, strict=True):
            prefill, decode = our_turn(side, prompts, steps if turn else 3)
            if turn:
                times.append((prefill, statistics.median(decode)))
    return [
        Row(
            f"int8.{dtype}.b{batch}.p{PROMPT}.{phase}",
            min(times[index] for times in taken[0]),
            f"ours, {dtype} weights",
            min(times[index] for times in taken[1]),
        )
        for index, phase in enumerate(("prefill", "decode"))
    ]


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default 3)")
    parser.add_argument("--steps", type=int, default=16, help="decode steps a turn (default 16)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    path = locate("smollm2")
    assert path is not None
    checkpoint = open_checkpoint(path)
    rows: list[Row] = []
    for dtype in ("f32", "bf16"):
        for batch in (1, 8):
            print(f"measuring {dtype}.b{batch} ...", file=sys.stderr, flush=True)
            rows += measure(checkpoint, dtype, batch, options.rounds, options.steps)
    print(table(rows))
    if options.json:
        write_json(rows, options.json)


if __name__ == "__main__":
    main()
