"""Decode steps of SmolLM2, its ranks over pinned processes: measured."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Function, Module
from graphgen.lowering.cpu.processes import join_processes
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.model import build_model

WARM = 8


def settings(dtype: str, ranks: int) -> CompileConfig:
    """One row, 128 slots."""
    return CompileConfig(dtype=dtype, tp=ranks).serving(batch=1, max_len=128)


def decode_program(dtype: str, ranks: int) -> tuple[Module, Function]:
    """The decode program of a rank."""
    path = locate("smollm2")
    assert path is not None
    module = build_model(open_checkpoint(path).config, settings(dtype, ranks)).module
    (found,) = (function for function in module.programs() if function.phase == "decode")
    return module, found


def decode_seconds(given: dict[str, Any]) -> list[float]:
    """Seconds of each step of this process."""
    from benchmarks.comparison.session_programs import session_of

    if given["count"] > 1:
        join_processes(given["address"], given["count"], given["index"], 300)
    path = locate("smollm2")
    assert path is not None
    session = session_of(open_checkpoint(path), settings(given["dtype"], given["count"]))
    tokens = session.prefill([list(range(5, 37))]).argmax(-1)
    seconds: list[float] = []
    for step in range(WARM + given["steps"]):
        start = time.perf_counter()
        tokens = np.asarray(session.decode(tokens.tolist())).argmax(-1)
        if step >= WARM:
            seconds.append(time.perf_counter() - start)
    return seconds
