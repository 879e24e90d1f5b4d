"""Steps are timed without the prefills between them; percentiles and memory are told."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from benchmarks.comparison.interfaces import Case
from benchmarks.step_latency import row_of, step_times
from graphgen.runtime.session.session import Session

CASE = Case("bf16", 2, 4)


class Counting:
    """A session that counts the steps after each prompt."""

    def __init__(self) -> None:
        self.decoded: list[int] = []

    def reset(self) -> None:
        self.decoded.append(0)

    def prefill(self, prompts: list[list[int]]) -> np.ndarray:
        assert [len(prompt) for prompt in prompts] == [CASE.prompt] * CASE.batch
        return np.eye(2)

    def decode(self, tokens: list[int]) -> np.ndarray:
        assert tokens == [0, 1]
        self.decoded[-1] += 1
        return np.eye(2)


def test_rows_begin_again_where_the_cache_is_full():
    session = Counting()
    assert len(list(step_times(cast(Session, session), CASE, 10))) == 10
    assert session.decoded == [4, 4, 2]


def test_percentiles_are_told_with_memory():
    row = row_of(CASE, np.arange(1, 102) / 1000, 10_000_000, 11_000_000).as_json()
    assert (row["case"], row["peer"]) == ("bf16.b2.p4.step.p99", "p50 of the same")
    assert (row["ours_s"], row["peer_s"]) == (pytest.approx(0.1), pytest.approx(0.051))
    assert row["p99_over_p50"] == pytest.approx(0.1 / 0.051)
    assert (row["steps"], row["rss_mb"], row["rss_end_mb"]) == (101, 10.0, 11.0)
