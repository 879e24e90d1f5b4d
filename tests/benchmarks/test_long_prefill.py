"""Prefill of a long prompt: memory grows with its tokens, and not with their square."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.long_prefill import compiled, exponent, inputs_of, launched
from graphgen.lowering.cpu.program import CpuProgram

# Bytes that a quarter of 32768 tokens may take, which may take 1.5 GB. What XLA plans is a part of
# what it takes: its products have memory of their own.
PLANNED, MOST = 1_500_000_000 // 4, 500_000_000


def temporaries(program: CpuProgram) -> int:
    """Bytes that XLA plans for intermediate values."""
    executable = cast(Any, program.executable)
    return executable.get_compiled_memory_stats().temp_size_in_bytes


@pytest.mark.slow
def test_eight_thousand_tokens(optimized_code: None):
    """A whole value of scores would take 2.4 GB, a mask 67 MB; more layers take no more."""
    program, (remark,) = compiled(8192, 2, "f32", "auto")
    assert ": tiles of " in remark
    assert 0 < temporaries(program) < PLANNED
    _, _, peak = launched(program, inputs_of(program, 8192))
    assert 0 < peak < MOST


def test_whole_attention_takes_memory_of_all_scores():
    """The measure sees them: 9 heads of 512 tokens and slots."""
    tiled, whole = [temporaries(compiled(512, 1, "f32", block)[0]) for block in ("64", "off")]
    assert tiled < whole - 4 * 9 * 512**2 // 2


def test_the_exponent_is_that_of_the_time_of_a_token():
    rows: list[dict[str, object]] = [{"tokens": n, "seconds": 3e-9 * n**2.5} for n in (10, 40, 90)]
    assert exponent(rows) == pytest.approx(1.5)
