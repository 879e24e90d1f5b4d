"""How fast is SmolLM2-135M on this CPU, beside transformers eager with the same weights?

Both sides live in one process and take turns: prefill, then decode steps, case by case.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.peers.transformers_llama import Eager
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

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Case:
    """One setting.

    Attributes:
        dtype: ``f32`` or ``bf16``.
        batch: rows.
        prompt: tokens a row before the first new one.
    """

    dtype: str
    batch: int
    prompt: int

    @property
    def name(self) -> str:
        """As printed."""
        return f"{self.dtype}.b{self.batch}.p{self.prompt}"


CASES = [Case(*c) for c in itertools.product(("f32", "bf16"), (1, 8), (128, 512))]


def open_session(checkpoint: Checkpoint, case: Case) -> Session:
    """Our side: programs for the case and its weights."""
    built = build_model(
        checkpoint.config,
        CompileConfig(dtype=case.dtype).serving(batch=case.batch, max_len=2 * case.prompt),
    )
    source = RankWeights(built.module, lambda row: read_weight(checkpoint, row))
    return Session(ExecutableCache(built.module, Silent()), put_weights(source, Silent()))


def our_turn(session: Session, prompts: Tokens, steps: int) -> tuple[float, list[float]]:
    """Seconds of the prefill and of each greedy decode step."""
    session.reset()
    start = time.perf_counter()
    tokens = session.prefill(prompts.tolist()).argmax(-1)
    prefill = time.perf_counter() - start
    out: list[float] = []
    for _ in range(steps):
        start = time.perf_counter()
        tokens = session.decode(tokens.tolist()).argmax(-1)
        out.append(time.perf_counter() - start)
    return prefill, out


def measure(case: Case, session: Session, eager: Eager, rounds: int, steps: int) -> list[Row]:
    """Prefill and decode of one case: the best prefill and the median step of each round's best."""
    rng = np.random.default_rng(0)
    prompts = rng.integers(5, 49000, (case.batch, case.prompt)).astype(np.int32)
    our_turn(session, prompts, 3)
    eager.prefill(prompts)
    eager.decode(3)
    ours: list[tuple[float, float]] = []
    peers: list[tuple[float, float]] = []
    for _ in range(rounds):
        prefill, decode = our_turn(session, prompts, steps)
        ours.append((prefill, statistics.median(decode)))
        prefill = eager.prefill(prompts)
        peers.append((prefill, statistics.median(eager.decode(steps))))
    peer = "transformers eager"
    return [
        Row(
            f"{case.name}.{phase}",
            min(turn[index] for turn in ours),
            peer,
            min(turn[index] for turn in peers),
        )
        for index, phase in enumerate(("prefill", "decode"))
    ]


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a case, e.g. bf16.b1.p128; repeatable")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default 3)")
    parser.add_argument("--steps", type=int, default=16, help="decode steps a turn (default 16)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    path = locate("smollm2")
    assert path is not None
    checkpoint = open_checkpoint(path)
    rows: list[Row] = []
    for dtype, cases in itertools.groupby(CASES, key=lambda case: case.dtype):
        chosen = [case for case in cases if not options.only or case.name in options.only]
        eager = Eager(checkpoint, dtype) if chosen else None
        for case in chosen:
            print(f"measuring {case.name} ...", file=sys.stderr, flush=True)
            assert eager is not None
            session = open_session(checkpoint, case)
            rows += measure(case, session, eager, options.rounds, options.steps)
    print(table(rows))
    if options.json:
        write_json(rows, options.json)


if __name__ == "__main__":
    main()
