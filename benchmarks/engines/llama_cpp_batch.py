"""llama.cpp by the C interface of llama-cpp-python: one batch a step, greedy over its logits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import llama_cpp as c  # pyright: ignore[reportMissingImports]
import numpy as np
import numpy.typing as npt

from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError
from benchmarks.comparison.rivals import best_tokens, surprise

# Element types of the caches, in ggml's numbers; f16, its default, for all but f32.
CACHE_TYPES = {"f32": 0}
F16 = 1


class LlamaCpp:
    """One model and one context at a time."""

    def __init__(self) -> None:
        self.version = f"llama.cpp of llama-cpp-python {version('llama-cpp-python')}"
        # ctypes' structures have no types.
        self._c: Any = c
        self._c.llama_backend_init()
        self._path, self._weights, self._threads = "", "", 1
        self._model: Any = None
        self._context: Any = None

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        """The model of the case's GGUF file; a context for its rows."""
        if case.weights not in files.gguf:
            raise UnsupportedError(f"no GGUF file for {case.weights}")
        self._weights, self._threads = case.weights, threads
        path = files.gguf[case.weights]
        self._free_context()
        if path != self._path:
            if self._model is not None:
                self._c.llama_model_free(self._model)
            settings = self._c.llama_model_default_params()
            self._model = self._c.llama_model_load_from_file(path.encode(), settings)
            self._path = path
        # A batch holds whole rows; a row of a cache is padded to 256 by llama.cpp.
        self._context = self._new_context(case.batch, case.slots, case.batch * case.prompt)

    def turn(self, prompts: Sequence[Sequence[int]], steps: int) -> Turn:
        """A batch with all prompts, then one with a token for each row."""
        self._clear()
        rows, width = len(prompts), len(prompts[0])
        # A caller in C fills it in no time: it is not timed.
        batch = self._batch(prompts, 0)
        seen: list[npt.NDArray[np.float32]] = []
        times: list[float] = []
        chosen: list[list[int]] = []
        for step in range(steps + 1):
            start = time.perf_counter()
            if step:
                batch = self._batch([[token] for token in chosen[-1]], width + step - 1)
            logits = self._logits(batch)
            chosen.append(logits.argmax(-1).tolist())
            times.append(time.perf_counter() - start)
            seen.append(logits)
        tokens = [list(row) for row in zip(*chosen, strict=True)]
        rivals = [[best_tokens(logits[row]) for logits in seen] for row in range(rows)]
        return Turn(times[0], times[1:], tokens, rivals)

    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        """In a context of one row that keeps the logits of every token."""
        longest = max(map(len, windows))
        self._free_context()
        self._context = self._new_context(1, longest, longest)
        total = 0.0
        for window in windows:
            self._clear()
            total += surprise(self._logits(self._batch([window], 0, every_token=True)), window)
        return total

    def _new_context(self, rows: int, slots: int, batch: int) -> Any:
        settings = self._c.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max = rows * slots, rows
        settings.n_batch = max(batch, rows)
        settings.n_threads = settings.n_threads_batch = self._threads
        settings.type_k = settings.type_v = CACHE_TYPES.get(self._weights, F16)
        return self._c.llama_init_from_model(self._model, settings)

    def _free_context(self) -> None:
        if self._context is not None:
            self._c.llama_free(self._context)
            self._context = None

    def _clear(self) -> None:
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), True)

    def _batch(
        self, rows: Sequence[Sequence[int]], first: int, *, every_token: bool = False
    ) -> Any:
        """Tokens for every row from position ``first`` on.

        Logits are asked for at each row's last token, or at all of them with ``every_token``.
        """
        batch = self._c.llama_batch_init(sum(map(len, rows)), 0, 1)
        at = 0
        for row, tokens in enumerate(rows):
            for place, token in enumerate(tokens):
                batch.token[at], batch.pos[at] = token, first + place
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
                batch.logits[at] = every_token or place == len(tokens) - 1
                at += 1
        batch.n_tokens = at
        return batch

    def _logits(self, batch: Any) -> npt.NDArray[np.float32]:
        """Run a batch and free it; f32 [n,V] of the n tokens whose logits were asked for."""
        if failed := self._c.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {failed}")
        width = self._c.llama_vocab_n_tokens(self._c.llama_model_get_vocab(self._model))
        asked = sum(batch.logits[at] for at in range(batch.n_tokens))
        self._c.llama_batch_free(batch)
        # The rows that were asked for, in the order of the batch.
        rows = self._c.llama_get_logits(self._context)
        return np.array(np.ctypeslib.as_array(rows, (asked, width)))


def create() -> LlamaCpp:
    """The engine."""
    return LlamaCpp()
