"""What do eight adapters cost a decode step of SmolLM2-135M, each row with its own?

Two sessions of the same weights, without and with slots for adapters, in turn: a step of one, a
step of the other, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.comparison.session_programs import SETTINGS, session_of
from benchmarks.rows import Row, table, write_json
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.session.session import Session

ROWS, SLOTS, RANK = 8, 8, 16
PROMPT, LONGEST = 32, 128
# Steps before the first one that counts.
WARM = 5
WEIGHTS = ("f32", "bf16", "int8")


def with_random_adapters(session: Session) -> Session:
    """Fill all slots, and give each row another one."""
    slots, rng = session.adapters, np.random.default_rng(0)
    assert slots is not None
    for slot in range(SLOTS):
        parts: dict[str, npt.NDArray[np.float32]] = {}
        for name, ((_, inputs), (outputs, _)) in slots.targets.items():
            parts[f"{name}.lora_A"] = 0.01 * rng.standard_normal((RANK, inputs), np.float32)
            parts[f"{name}.lora_B"] = 0.01 * rng.standard_normal((outputs, RANK), np.float32)
        slots.write(slot, parts)
        slots.assign(slot % ROWS, slot)
    return session


def measure(checkpoint: Checkpoint, weights: str, steps: int, targets: tuple[str, ...]) -> Row:
    """Median seconds of a step with adapters, beside those of a step without.

    Args:
        checkpoint: of the model.
        weights: how they are held.
        steps: that count.
        targets: projections with adapters; empty for all of the layers.
    """
    settings = SETTINGS[weights].serving(
        batch=ROWS, max_len=LONGEST, context=(PROMPT,), tokens=(LONGEST,)
    )
    slots = {"max_loras": SLOTS, "max_lora_rank": RANK, "lora_target_modules": targets}
    adapted = settings.updated(slots)
    base = session_of(checkpoint, settings)
    sessions = (base, with_random_adapters(session_of(checkpoint, adapted)))
    rng = np.random.default_rng(1)
    prompts = rng.integers(5, 49000, (ROWS, PROMPT)).tolist()
    times, work = np.zeros((steps, 2)), np.zeros((steps, 2))
    held = [session.prefill(prompts).argmax(-1) for session in sessions]
    for step in range(-WARM, steps):
        for place, session in enumerate(sessions):
            if int(session.lengths[0]) >= LONGEST:
                held[place] = session.prefill(prompts).argmax(-1)
            start, spent = time.perf_counter(), time.process_time()
            held[place] = session.decode(held[place].tolist()).argmax(-1)
            if step >= 0:
                times[step, place] = time.perf_counter() - start
                work[step, place] = time.process_time() - spent
    plain, with_adapters = np.median(times, axis=0).tolist()
    # Where other work shares the machine, seconds of all threads say more than those of a clock.
    plain_work, adapter_work = np.median(work, axis=0).tolist()
    extra: dict[str, int | float | str] = {
        "cost": with_adapters / plain,
        "cpu_cost": adapter_work / plain_work,
        "adapters": SLOTS,
        "rank": RANK,
        "steps": steps,
    }
    case = ".".join([f"{weights}.b{ROWS}.lora", *targets])
    return Row(case, with_adapters, "without adapters", plain, extra)


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=WEIGHTS, help="weights; repeatable")
    parser.add_argument("--steps", type=int, default=60, help="steps that count")
    parser.add_argument(
        "--targets", default="", help="projections with adapters, such as q_proj,v_proj; all"
    )
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    args = parser.parse_args()
    path = locate("smollm2")
    assert path is not None
    checkpoint = open_checkpoint(path)
    targets = tuple(filter(None, args.targets.split(",")))
    rows = [measure(checkpoint, weights, args.steps, targets) for weights in args.only or WEIGHTS]
    print(table(rows, ("cost", "cpu_cost")))
    if args.json:
        write_json(rows, args.json)


if __name__ == "__main__":
    main()
