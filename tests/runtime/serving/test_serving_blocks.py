"""Requests that come and go at random on a paged cache with too few blocks for all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.serving.block_rows import BlockRows
from graphgen.runtime.serving.scheduler import Scheduler
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest
from graphgen.runtime.session.devices import RowCopy
from graphgen.runtime.session.session import Session
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.runtime.serving.test_serving_model import (
    SERVED,
    alone,
    flips,
    four_answers,
    random_requests,
    serve,
    session_of,
)

# Four rows of up to 47 tokens in 26 blocks: answers grow beyond what there is.
PAGED = replace(SERVED, page_cache=4, cache_blocks=26)


def blocks_of(engine: ServingEngine) -> BlockRows:
    pool = engine.scheduler.pool
    assert isinstance(pool, BlockRows)
    return pool


@pytest.mark.parametrize(
    ("seed", "count"),
    [
        pytest.param(0, 60),
        pytest.param(1, 60),
        *(pytest.param(seed, 500, marks=pytest.mark.slow) for seed in range(2, 22)),
    ],
)
@pytest.mark.one_in(2)
def test_each_answer_is_that_of_the_request_alone(seed: int, count: int):
    rng = np.random.default_rng(seed)
    session, requests = session_of(PAGED), random_requests(rng, count, 97)
    with (
        patch.object(Scheduler, "_preempt", autospec=True, side_effect=Scheduler._preempt) as lost,
        patch.object(Session, "copy_block", autospec=True, side_effect=Session.copy_block) as copy,
    ):
        engine = ServingEngine(session)
        served = serve(engine, requests, rng)
    pool = blocks_of(engine)
    assert pool.free == session.rows
    assert pool.blocks.available == 26
    assert not any(pool.blocks.counts)
    # Everything that a paged cache does has happened.
    assert lost.call_count > 0
    assert pool.reused > 0
    assert pool.blocks.cached > 0
    assert count < 500 or copy.call_count > 0
    finished = [request for request in requests if served[request.id][1] is not Finish.CANCELLED]
    assert count // 2 < len(finished) < count
    assert sum(flips(request, served[request.id][0]) for request in finished) <= count // 100
    for request in finished:
        tokens, end = served[request.id]
        assert (end is Finish.EOS) == (tokens[-1] in request.eos_ids)


@pytest.mark.parametrize("tp", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_several_answers_to_one_prompt_share_its_blocks(tp: int):
    engine, launches = four_answers(replace(PAGED, tp=tp))
    # Seven tokens of the prompt, and its last one again for each of the other answers.
    assert sum(count for _, count in launches) == 7 + 3 + 4 * 5
    # Of the other three, the first four tokens are in the same block, the next two in a copy.
    assert blocks_of(engine).reused == 3 * 6


def test_a_prompt_of_a_second_request_begins_behind_the_shared_blocks():
    session = session_of(PAGED)
    engine = ServingEngine(session)
    first = tuple(np.random.default_rng(6).integers(1, 97, 14).tolist())
    requests = [ServingRequest("a", first, 3), ServingRequest("b", (*first[:9], 5, 6, 7, 8), 3)]
    reused: list[int] = []
    for request in requests:
        engine.submit(request)
        served = serve(engine, [], np.random.default_rng(0))
        assert served[request.id][0] == alone(request)
        reused.append(blocks_of(engine).reused)
    assert reused == [0, 8]


def test_on_and_off_async_mode_gives_the_same_tokens(tmp_path: Path):
    write_llama(tmp_path)
    config = replace(PAGED, sampling="on-device-sampling{do_sample=true,global_topk=40}")
    session = open_session(tmp_path, config)
    requests = random_requests(np.random.default_rng(7), 24, 97)
    on, off = (
        {
            name: tokens
            for name, (tokens, end) in serve(
                ServingEngine(session, async_mode=mode), requests, np.random.default_rng(8)
            ).items()
            if end is not Finish.CANCELLED
        }
        for mode in (True, False)
    )
    both = on.keys() & off.keys()
    assert len(both) > 12
    assert {name: on[name] for name in both} == {name: off[name] for name in both}


def test_nothing_is_compiled_after_the_warm_up_not_even_for_copies(tmp_path: Path):
    write_llama(tmp_path)
    small = CompileConfig(
        batch=(2,), prefill_batch=(1,), rows=2, context=(16,), tokens=(16,), page_cache=4
    )
    engine = ServingEngine(open_session(tmp_path, small))
    engine.warm_up()
    for name in "ab":
        engine.submit(ServingRequest(name, tuple(range(1, 8)), 3))
    compiled = AssertionError("a program is compiled while a request waits")
    with (
        patch.object(ExecutableCache, "_make", side_effect=compiled),
        patch.object(RowCopy, "launch", autospec=True, side_effect=RowCopy.launch) as copy,
    ):
        served = serve(engine, [], np.random.default_rng(0))
    assert {end for _, end in served.values()} == {Finish.LENGTH}
    assert copy.call_count == 1


def test_a_prompt_that_all_blocks_do_not_hold_is_refused(tmp_path: Path):
    write_llama(tmp_path)
    small = CompileConfig(
        batch=(1,), rows=1, context=(16,), tokens=(16,), page_cache=4, cache_blocks=3
    )
    session = open_session(tmp_path, small)
    assert session.limit == 12
    engine = ServingEngine(session)
    with pytest.raises(GraphgenError, match="no room in the 3 blocks of 4 tokens") as caught:
        engine.submit(ServingRequest("long", (1,) * 13))
    assert caught.value.code == "GG0701"
    request = ServingRequest("fits", (1,) * 12, 9)
    engine.submit(request)
    tokens, end = serve(engine, [], np.random.default_rng(0))["fits"]
    assert (tokens, end) == (alone(request)[:1], Finish.LENGTH)


def test_a_step_without_a_block_for_its_tokens_is_refused():
    session = session_of(PAGED)
    session.reset()
    session.assign_blocks(1, [3], 0)
    with pytest.raises(GraphgenError, match=r"has blocks for 4 positions, .* needs 5"):
        session.step([[1, 2, 3, 4, 5]], [[0, 1, 2, 3, 4]], [1])
