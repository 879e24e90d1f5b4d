"""What does transformers' generate() cost a token on SmolLM2-135M, above the engine's own loop?

Both sides drive the same programs of one session in one process, and take turns.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.real_time_priority import at_real_time, threads_of
from benchmarks.rows import Row, table, write_json
from graphgen.runtime.aws_config.inference_config import load_pretrained_config
from graphgen.runtime.aws_config.neuron_config import NeuronConfig, OnDeviceSamplingConfig
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import GREEDY, Sampling

PROMPT = 64
SAMPLED = {"top_k": 50, "top_p": 0.9, "temperature": 0.8}
# Seconds a token that the adapter may take more: the larger one of a constant and a share.
ALLOWED, SHARE = 0.003, 0.1


@dataclass(frozen=True, slots=True)
class Case:
    """One setting.

    Attributes:
        dtype: ``float32`` or ``bfloat16``.
        batch: rows.
        mode: ``greedy``, ``sample``, or ``device`` for programs that choose the tokens.
    """

    dtype: str
    batch: int
    mode: str

    @property
    def name(self) -> str:
        """As printed."""
        return f"{self.dtype}.b{self.batch}.{self.mode}"


CASES = [
    Case("float32", 1, "greedy"),
    Case("float32", 1, "sample"),
    Case("float32", 1, "device"),
    Case("bfloat16", 1, "greedy"),
    Case("float32", 8, "greedy"),
    Case("float32", 8, "sample"),
]


class Clock:
    """A streamer of transformers that notes when tokens come.

    Attributes:
        times: seconds at which the prompts and each step's tokens came.
    """

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        """Note the time."""
        del value
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing."""


def open_adapter(path: Path, case: Case, steps: int) -> HuggingFaceGenerationAdapter:
    """The adapter over a loaded application."""
    sampling: dict[str, Any] = {}
    if case.mode == "device":
        sampling["on_device_sampling_config"] = OnDeviceSamplingConfig()
    # One bucket, so that every step attends to as many slots.
    config = NeuronConfig(
        batch_size=case.batch,
        seq_len=PROMPT + steps,
        max_context_length=PROMPT,
        torch_dtype=case.dtype,
        enable_bucketing=False,
        **sampling,
    )
    kind = NeuronLlamaForCausalLM
    made = kind.get_config_cls()(config, load_config=load_pretrained_config(path))
    application = kind(str(path), made)
    application.progress = Silent()
    return HuggingFaceGenerationAdapter(application.to_cpu())


def adapter_turn(
    adapter: HuggingFaceGenerationAdapter, prompts: torch.Tensor, case: Case, steps: int
) -> list[float]:
    """Seconds of each decode step, from one call of the streamer to the next."""
    clock = Clock()
    settings: dict[str, Any] = {"do_sample": case.mode == "sample"}
    if case.mode == "sample":
        settings |= SAMPLED
    adapter.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=steps,
        eos_token_id=None,
        pad_token_id=0,
        streamer=clock,
        **settings,
    )
    marks = clock.times[1:]
    return [after - before for before, after in itertools.pairwise(marks)]


def engine_turn(
    adapter: HuggingFaceGenerationAdapter, prompts: torch.Tensor, case: Case, steps: int
) -> list[float]:
    """Seconds of each decode step of the engine's loop, in the same session."""
    session = adapter.neuron_model.running().session  # pyright: ignore[reportAttributeAccessIssue]
    how = Sampling(do_sample=True, **SAMPLED) if case.mode == "sample" else GREEDY
    request = GenerationRequest(max_new_tokens=steps, sampling=how)
    return generate(session, prompts.tolist(), request)[1].steps


def measure(path: Path, case: Case, rounds: int, steps: int, alone: bool) -> Row:
    """The best turn's median step of each side."""
    adapter = open_adapter(path, case, steps)
    random = np.random.default_rng(0)
    prompts = torch.from_numpy(random.integers(5, 49000, (case.batch, PROMPT)))
    turns: list[Callable[..., list[float]]] = [adapter_turn, engine_turn]
    taken: list[list[float]] = [[], []]
    for side in turns:
        side(adapter, prompts, case, 3)
    with at_real_time(threads_of() if alone else ()):
        for _ in range(rounds):
            for side, times in zip(turns, taken, strict=True):
                times.append(statistics.median(side(adapter, prompts, case, steps)))
    ours, engine = min(taken[0]), min(taken[1])
    over = ours - engine
    extra: dict[str, int | float | str] = {
        "over_ms": over * 1e3,
        "allowed_ms": max(ALLOWED, SHARE * engine) * 1e3,
    }
    return Row(case.name, ours, "engine's loop", engine, extra)


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a case, e.g. float32.b1.greedy")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default 3)")
    parser.add_argument("--steps", type=int, default=64, help="new tokens a turn (default 64)")
    parser.add_argument("--alone", action="store_true", help="let other work wait; needs root")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    path = locate("smollm2")
    assert path is not None
    rows: list[Row] = []
    for case in CASES:
        if options.only and case.name not in options.only:
            continue
        print(f"measuring {case.name} ...", file=sys.stderr, flush=True)
        rows.append(measure(path, case, options.rounds, options.steps, options.alone))
    print(table(rows, ("over_ms", "allowed_ms")))
    if options.json:
        write_json(rows, options.json)


if __name__ == "__main__":
    main()
