"""The phases of a start add up, and the best start is the one that is told."""

from __future__ import annotations

import pytest

from benchmarks.cold_start import PHASES, phases_of, row_of

OPENING = {"opening and checks": 0.1, "JAX": 0.4, "tokenizer": 0.1, "rest of weights": 0.0}


def timings(cold: float) -> dict[str, object]:
    return {"cold_start_s": cold, "compile_s": 0.05, "ttft_ms": 150.0, "phases_s": OPENING}


def test_what_has_no_phase_of_its_own_are_imports():
    found = phases_of(timings(1.2))
    assert tuple(found) == PHASES
    assert sum(found.values()) == pytest.approx(1.2)
    assert found["imports"] == pytest.approx(0.4)
    assert found["first token"] == pytest.approx(0.15)


def test_the_best_start_is_told_with_the_worst_beside():
    row = row_of([timings(1.4), timings(1.2), timings(1.3)], 0.5).as_json()
    assert (row["case"], row["peer"]) == ("bf16.b1.cold_start", "JAX alone")
    assert (row["ours_s"], row["peer_s"], row["worst_s"]) == (1.2, 0.5, 1.4)
    assert row["imports"] == pytest.approx(0.4)
