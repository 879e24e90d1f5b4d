"""A Llama of transformers from a folder of Hugging Face's form, stepped greedily."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError
from benchmarks.comparison.rivals import best_tokens, surprise

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class TorchLlama:
    """One model at a time, with the cache and the forward pass of an engine.

    Args:
        name: as printed before the version.
        new_cache: the cache of a model for a case.
        prepared: the forward pass as it is called, of a model.
    """

    def __init__(
        self,
        name: str,
        new_cache: Callable[[Any, Case], Any],
        prepared: Callable[[Any], Callable[..., Any]],
    ) -> None:
        self.version = f"{name} {version('transformers')}, torch {torch.__version__}"
        self._new_cache, self._prepared = new_cache, prepared
        self._weights = ""
        self._case: Case | None = None
        self._model: Any = None
        self._forward: Callable[..., Any] | None = None

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        """The model in the case's type."""
        if case.weights not in DTYPES:
            raise UnsupportedError(f"no weights in {case.weights}")
        torch.set_num_threads(threads)
        if case.weights != self._weights:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                files.folder, dtype=DTYPES[case.weights]
            )
            self._model, self._weights = loaded.eval(), case.weights
        self._case, self._forward = case, self._prepared(self._model)

    @torch.inference_mode()
    def turn(self, prompts: Sequence[Sequence[int]], steps: int) -> Turn:
        """Prefill computes the logits of last tokens alone."""
        assert self._case is not None
        assert self._forward is not None
        cache, places = self._new_cache(self._model, self._case), torch.arange(len(prompts[0]))
        fed = torch.tensor(prompts)
        seen: list[torch.Tensor] = []
        times: list[float] = []
        chosen: list[list[int]] = []
        for _ in range(steps + 1):
            start = time.perf_counter()
            out = self._forward(
                fed,
                past_key_values=cache,
                position_ids=places[None],
                use_cache=True,
                logits_to_keep=1,
            )
            logits = out.logits[:, -1]
            fed = logits.argmax(-1, keepdim=True)
            chosen.append(fed[:, 0].tolist())
            times.append(time.perf_counter() - start)
            seen.append(logits.float().clone())
            places = places[-1:] + 1
        rows = [list(row) for row in zip(*chosen, strict=True)]
        rivals = [[best_tokens(logits[row].numpy()) for logits in seen] for row in range(len(rows))]
        return Turn(times[0], times[1:], rows, rivals)

    @torch.inference_mode()
    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        """By the forward pass of each window, without a cache."""
        total = 0.0
        for window in windows:
            logits: Any = self._model(torch.tensor([window])).logits[0]
            total += surprise(np.asarray(logits.float()), window)
        return total
