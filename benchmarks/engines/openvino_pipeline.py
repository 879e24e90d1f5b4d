"""OpenVINO GenAI's pipeline, which reads GGUF files in f16 and Q8_0 (not in f32 or bf16).

f32 and bf16 weights are therefore the nearest f16; the products are in the case's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import openvino  # pyright: ignore[reportMissingImports]
import openvino_genai as genai  # pyright: ignore[reportMissingImports]

from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError

# GGUF file and element type of products, by ``Case.weights``.
FORMS = {"f32": ("f16", "f32"), "bf16": ("f16", "bf16"), "int8": ("int8", "bf16")}
# GB of a cache.
CACHE = 1
# More tokens than any case has: a prompt is never cut into several steps.
BATCH = 8192


class OpenVino:
    """One pipeline at a time; it serves any number of rows."""

    def __init__(self) -> None:
        self.version = f"openvino-genai {version('openvino-genai')}"
        # Its bindings have no types.
        self._genai: Any = genai
        self._weights = ""
        self._pipeline: Any = None

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        """A pipeline with these weights, without its cache of prefixes."""
        if case.weights not in FORMS:
            raise UnsupportedError(f"no weights in {case.weights}")
        if case.weights == self._weights:
            return
        file, products = FORMS[case.weights]
        scheduler = self._genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_batched_tokens = CACHE, BATCH
        scheduler.enable_prefix_caching = False
        self._pipeline = self._genai.LLMPipeline(
            files.gguf[file],
            "CPU",
            scheduler_config=scheduler,
            INFERENCE_PRECISION_HINT=products,
            INFERENCE_NUM_THREADS=threads,
        )
        self._weights = case.weights

    def turn(self, prompts: Sequence[Sequence[int]], steps: int) -> Turn:
        """Times are those that the pipeline measures itself, of each step."""
        settings = self._genai.GenerationConfig()
        settings.max_new_tokens, settings.ignore_eos = steps + 1, True
        settings.do_sample = settings.apply_chat_template = False
        ids = np.array(prompts, np.int64)
        inputs = self._genai.TokenizedInputs(
            openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))
        )
        result = self._pipeline.generate(inputs, settings)
        # Microseconds.
        times = [t / 1e6 for t in result.perf_metrics.raw_metrics.token_infer_durations]
        return Turn(times[0], times[1:], [list(row) for row in result.tokens])

    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        """Not offered."""
        raise UnsupportedError("its pipeline gives no logits of a whole text")


def create() -> OpenVino:
    """The engine."""
    return OpenVino()
