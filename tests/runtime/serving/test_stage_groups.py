"""Rows that answer are groups, one for each stage of a pipeline, with a launch in flight each."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from graphgen.runtime.serving.scheduler import SchedulerOptions
from graphgen.runtime.serving.serving_engine import ServingEngine, options_of
from graphgen.runtime.serving.serving_request import ServingRequest
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.runtime.serving.fake_session import FakeSession, as_session
from tests.runtime.serving.test_serving_model import SERVED


def finished(engine: ServingEngine, requests: int) -> dict[str, list[int]]:
    """The tokens of requests that come together, of 12 tokens each."""
    for number in range(requests):
        engine.submit(ServingRequest(str(number), (number + 1,) * (number + 1), 12))
    made: dict[str, list[int]] = {}
    while engine.busy:
        for event in engine.step():
            assert event.token is not None
            made.setdefault(event.id, []).append(event.token)
    return made


def test_each_stage_has_a_group():
    session = FakeSession(5, 64, 4, 1)
    engine = ServingEngine(as_session(session), SchedulerOptions(groups=2))
    made = finished(engine, 5)
    assert made == finished(ServingEngine(as_session(FakeSession(5, 64, 4, 1))), 5)
    assert session.most_unread == 2
    groups = session.launched[12:20]
    assert {len(rows) for rows in groups} == {2, 3}
    assert all(not {*one} & {*other} for one, other in pairwise(groups))


def test_one_request_goes_from_stage_to_stage():
    session = FakeSession(5, 64, 4, 1)
    engine = ServingEngine(as_session(session), SchedulerOptions(groups=3))
    assert finished(engine, 1) == finished(ServingEngine(as_session(FakeSession(5, 64, 4, 1))), 1)
    assert session.most_unread == 1


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, 4], ids=["rows", "blocks"])
def test_a_model_in_stages_answers_as_it_does_whole(block: int, tmp_path: Path):
    write_llama(tmp_path)
    config = replace(SERVED, page_cache=block)
    whole = ServingEngine(open_session(tmp_path, config))
    stages = open_session(tmp_path, replace(config, pp_degree=2))
    assert options_of(stages).groups == 2
    assert finished(ServingEngine(stages), 4) == finished(whole, 4)
