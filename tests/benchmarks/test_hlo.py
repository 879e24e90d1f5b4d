"""The benchmark of HLO measures what it says."""

from __future__ import annotations

import pytest

from benchmarks.hlo import decode_step, measure, rows
from graphgen.ir import Role


def test_a_rank_of_the_benchmark_has_two_query_heads_and_one_key_value_head():
    module = decode_step(1)
    assert module.ranks == 64
    states = module.entries(Role.STATE)
    assert {row.physical.shape[2] for row in states} == {1}


@pytest.mark.slow
def test_every_step_is_timed_once():
    found = measure(1)
    assert found["ops"] > 50
    assert all(found[key] > 0 for key in ("emit", "read", "peer_emit", "peer_read", "bytes"))
    slower = {key: value * 2 for key, value in found.items()}
    emit, read = rows([slower, found], "x")
    assert (emit.ours_s, emit.peer_s) == (found["emit"], found["peer_emit"])
    assert (read.ours_s, read.peer_s) == (found["read"], found["peer_read"])
