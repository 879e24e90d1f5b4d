"""ONNX Runtime GenAI's generator, on what its model builder makes of the Hugging Face folder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as genai  # pyright: ignore[reportMissingImports]

from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError

# The builder's precision, by ``Case.weights``; its CPU models have no bf16.
PRECISIONS = {"f32": "fp32", "int4": "int4"}


class OnnxRuntime:
    """One model at a time, built once beside the folder that it comes from."""

    def __init__(self) -> None:
        self.version = f"onnxruntime-genai {version('onnxruntime-genai')}"
        # Its bindings have no types.
        self._genai: Any = genai
        self._weights = ""
        self._model: Any = None

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        """Needs torch, transformers and onnx_ir the first time, for the builder."""
        if case.weights not in PRECISIONS:
            raise UnsupportedError(f"its model builder has no {case.weights} for the CPU")
        if case.weights == self._weights:
            return
        folder = Path(files.folder).parent / f"onnx-{case.weights}"
        if not (folder / "genai_config.json").exists():
            _build(files.folder, folder, PRECISIONS[case.weights])
        config = self._genai.Config(str(folder))
        options = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": options}}))
        self._model, self._weights = self._genai.Model(config), case.weights

    def turn(self, prompts: Sequence[Sequence[int]], steps: int) -> Turn:
        """Appending the prompts runs the prefill."""
        length = len(prompts[0]) + steps + 1
        settings = self._genai.GeneratorParams(self._model)
        settings.set_search_options(
            batch_size=len(prompts), max_length=length, min_length=length, do_sample=False
        )
        generator = self._genai.Generator(self._model, settings)
        times: list[float] = []
        chosen: list[list[int]] = []
        for step in range(steps + 1):
            start = time.perf_counter()
            if step == 0:
                generator.append_tokens(np.array(prompts, np.int32))
            generator.generate_next_token()
            chosen.append([int(token) for token in generator.get_next_tokens()])
            times.append(time.perf_counter() - start)
        return Turn(times[0], times[1:], [list(row) for row in zip(*chosen, strict=True)])

    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        """Not offered."""
        raise UnsupportedError("its generator gives no logits of a whole text")


def _build(source: str, target: Path, precision: str) -> None:
    command = ["-m", "onnxruntime_genai.models.builder", "-i", source, "-o", str(target)]
    subprocess.run(
        [sys.executable, *command, "-p", precision, "-e", "cpu", "-c", f"{target}-cache"],
        check=True,
    )


def create() -> OnnxRuntime:
    """The engine."""
    return OnnxRuntime()
