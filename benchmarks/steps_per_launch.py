"""Milliseconds a token where a launch makes 1, 2, 4 or 8 decode steps: the cost of a launch.

SmolLM2-135M in bf16, one row, tokens chosen by the programs. All take turns in one process and
have to give the same tokens.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks.comparison.session_programs import SETTINGS, session_of
from benchmarks.real_time_priority import at_real_time, threads_of
from benchmarks.rows import Row, table, write_json
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.sampling import GREEDY
from graphgen.runtime.sampling.sampling_flags import on_device_pass
from graphgen.runtime.session.session import Session

STEPS = (1, 2, 4, 8)
SLOTS = 256
PROMPT = [5, 6, 7, 8] * 16
# Behind the first token, a multiple of all numbers of steps.
TOKENS = 64


def sessions_of(checkpoint: Checkpoint) -> dict[int, Session]:
    """A warm session for each number of steps."""
    sampling = on_device_pass([GREEDY], None, True)
    assert sampling is not None
    made: dict[int, Session] = {}
    for steps in STEPS:
        settings = replace(SETTINGS["bf16"], sampling=sampling, steps_per_launch=steps)
        made[steps] = session_of(checkpoint, settings.serving(batch=1, max_len=SLOTS))
        made[steps].warm_up()
    return made


def measure(sessions: dict[int, Session], rounds: int) -> dict[int, float]:
    """Seconds a token of the best round of each; the rounds take turns."""
    best = dict.fromkeys(sessions, float("inf"))
    for _ in range(rounds):
        answers: list[list[int]] = []
        for steps, session in sessions.items():
            (done,), times = generate(session, [PROMPT], GenerationRequest(TOKENS + 1))
            best[steps] = min(best[steps], times.per_step)
            answers.append(done.tokens)
        assert all(tokens == answers[0] for tokens in answers)
    return best


def rows_of(best: dict[int, float]) -> list[Row]:
    """Each number of steps beside single ones."""
    return [
        Row(f"bf16.b1.steps{steps}", seconds, "one step a launch", best[1], {"ms": seconds * 1e3})
        for steps, seconds in best.items()
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="turns of each")
    parser.add_argument("--alone", action="store_true", help="let other work wait; needs root")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    given = parser.parse_args()
    path = locate("smollm2")
    assert path is not None
    sessions = sessions_of(open_checkpoint(path))
    with at_real_time(threads_of() if given.alone else ()):
        rows = rows_of(measure(sessions, given.rounds))
    print(table(rows, ("ms",)))
    if given.json:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
