"""Memory does not grow while tokens are generated."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent


def resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


@pytest.mark.slow
def test_memory_is_constant_from_step_100_to_step_500():
    import jax

    engine, prompts = open_engine(
        "smollm2",
        EngineOptions(max_len=512),
        lambda t: [t.encode("Once upon a time")],
        500,
        Silent(),
    )
    seen: list[tuple[int, int]] = []

    def on_token(row: int, token: int) -> None:
        if len(seen) in (100, 500):
            gc.collect()
        live = sum(array.nbytes for array in jax.live_arrays())
        seen.append((live, resident_bytes()))

    request = GenerationRequest(501)
    assert not request.eos_ids
    (done,) = engine.generate(prompts, request, on_token).completions
    assert len(done.tokens) == len(seen) == 501
    for at_100, at_500 in zip(seen[100], seen[500], strict=True):
        assert abs(at_500 - at_100) <= 0.01 * at_100, (at_100, at_500)
