"""graphgen: a session of the runtime, programs and weights made as its commands make them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError
from benchmarks.comparison.rivals import best_tokens
from benchmarks.comparison.session_programs import SETTINGS, session_of
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.accuracy.perplexity import surprise
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.session.session import Session


class GraphgenSession:
    """Prefill and decode of one session."""

    def __init__(self) -> None:
        self.version = "graphgen"
        self._checkpoint: Checkpoint | None = None
        self._settings = CompileConfig()
        self._session: Session | None = None

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        """XLA takes the process's cores: ``threads`` has to be their number."""
        if case.weights not in SETTINGS:
            raise UnsupportedError(f"no weights in {case.weights} yet")
        self._settings = SETTINGS[case.weights]
        self._session = None
        self._checkpoint = open_checkpoint(
            Path(files.quantized.get(case.weights, files.checkpoint))
        )
        sized = self._settings.serving(batch=case.batch, max_len=case.slots)
        self._session = session_of(self._checkpoint, sized)

    def turn(self, prompts: Sequence[Sequence[int]], steps: int) -> Turn:
        """Logits come to the host, where argmax chooses."""
        session = self._session
        assert session is not None
        session.reset()
        # f32 [B,V] of every step.
        seen: list[npt.NDArray[np.float32]] = []
        times: list[float] = []
        chosen: list[list[int]] = []
        for step in range(steps + 1):
            start = time.perf_counter()
            logits = session.decode(chosen[-1]) if step else session.prefill(prompts)
            chosen.append(logits.argmax(-1).tolist())
            times.append(time.perf_counter() - start)
            seen.append(np.asarray(logits, np.float32))
        rows = [list(row) for row in zip(*chosen, strict=True)]
        rivals = [[best_tokens(logits[row]) for logits in seen] for row in range(len(rows))]
        return Turn(times[0], times[1:], rows, rivals)

    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        """By a program that returns the logits of every token."""
        assert self._checkpoint is not None
        sized = self._settings.serving(batch=1, max_len=max(map(len, windows)))
        session = session_of(self._checkpoint, sized, every_token=True)
        total = 0.0
        for window in windows:
            session.reset()
            total += surprise(np.asarray(session.prefill([window])[0], np.float32), window)
        return total


def create() -> GraphgenSession:
    """The engine."""
    return GraphgenSession()
