"""What do steps in flight gain on SmolLM2-135M, where each starts before the last tokens are read?

Off and on drive the same programs of one session in one process, and take turns; their tokens are
compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, table, write_json
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.progress import Silent
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import ServingRequest

PROMPT = 64


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds a step, and the tokens of all rows."""

    seconds: float
    tokens: list[list[int]]


def generated(engine: Engine, prompts: list[list[int]], steps: int, mode: bool) -> Turn:
    """One batch, as ``graphgen generate`` answers it."""
    made, timings = generate(engine.session, prompts, GenerationRequest(steps + 1), async_mode=mode)
    return Turn(statistics.median(timings.steps), [row.tokens for row in made])


def served(engine: Engine, prompts: list[list[int]], steps: int, mode: bool) -> Turn:
    """The same rows as requests of the serving engine, with their text."""
    server = ServingEngine(engine.session, tokenizer=engine.tokenizer, async_mode=mode)
    tokens: dict[str, list[int]] = {str(number): [] for number in range(len(prompts))}
    for number, prompt in enumerate(prompts):
        server.submit(ServingRequest(str(number), tuple(prompt), steps + 1))
    times: list[float] = []
    while server.busy:
        start = time.perf_counter()
        for event in server.step():
            if event.token is not None:
                tokens[event.id].append(event.token)
        times.append(time.perf_counter() - start)
    return Turn(statistics.median(times), list(tokens.values()))


def measure(path: Path, dtype: str, batch: int, rounds: int, steps: int) -> list[Row]:
    """The best turn's median step, off and on, of both loops."""
    random = np.random.default_rng(0)
    prompts: list[list[int]] = random.integers(5, 49000, (batch, PROMPT)).tolist()
    options = EngineOptions(
        CompileConfig.of(dtype=dtype, sampling="on-device-sampling"), batch=batch
    )
    engine, _ = open_engine(str(path), options, lambda _: prompts, steps + 1, Silent())
    rows: list[Row] = []
    loops: dict[str, Callable[[Engine, list[list[int]], int, bool], Turn]] = {
        "generate": generated,
        "serve": served,
    }
    for name, loop in loops.items():
        taken: dict[bool, list[float]] = {False: [], True: []}
        loop(engine, prompts, 3, True)
        for _ in range(rounds):
            turns = {mode: loop(engine, prompts, steps, mode) for mode in taken}
            assert turns[True].tokens == turns[False].tokens, "the tokens differ"
            for mode, turn in turns.items():
                taken[mode].append(turn.seconds)
        case = f"{name}.{dtype}.b{batch}"
        rows.append(Row(case, min(taken[True]), "async_mode off", min(taken[False])))
    return rows


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, action="append", help="rows (default 1 and 8)")
    parser.add_argument("--dtype", default="f32", help="element type (default f32)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default 3)")
    parser.add_argument("--steps", type=int, default=48, help="new tokens a turn (default 48)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    path = locate("smollm2")
    assert path is not None
    rows: list[Row] = []
    for batch in options.batch or (1, 8):
        print(f"measuring {batch} rows ...", file=sys.stderr, flush=True)
        rows += measure(path, options.dtype, batch, options.rounds, options.steps)
    print(table(rows))
    if options.json:
        write_json(rows, options.json)


if __name__ == "__main__":
    main()
