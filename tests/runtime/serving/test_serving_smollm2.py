"""Requests that come and go at random on SmolLM2: each answer's tokens are those of it alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.serving.block_rows import BlockRows
from graphgen.runtime.serving.scheduler import Scheduler
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest
from graphgen.runtime.session.row_results import StepOutput
from graphgen.runtime.session.session import Session
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer
from tests.oracles.sessions import open_session
from tests.oracles.smollm2 import smollm2_path
from tests.runtime.serving.test_serving_model import leaves_at_a_tie, serve

pytestmark = pytest.mark.usefixtures("optimized_code")

TEXT = Path(__file__).parents[2] / "data" / "lighthouse.txt"
LONGEST = 6
# Rows of up to 10 blocks: four of them need more than there are.
BLOCKS = 22
PAGED = CompileConfig(
    batch=(4,),
    prefill_batch=(1,),
    rows=4,
    context=(8,),
    tokens=(40,),
    chunk=(8,),
    page_cache=4,
    cache_blocks=BLOCKS,
)
# A bound on the difference of logits that the order of sums makes.
ROUNDING = 2e-4
SAMPLINGS = (
    GREEDY,
    *(Sampling(do_sample=True, top_k=20, temperature=1.5, seed=seed) for seed in (1, 2)),
)


@cache
def one_row() -> Session:
    return open_session(smollm2_path(), CompileConfig(context=(32,), tokens=(40,)))


@cache
def longest_answer(prompt: tuple[int, ...], sampling: Sampling) -> list[int]:
    """Six tokens after a prompt that is alone in a cache of one row."""
    (made,), _ = generate(one_row(), [prompt], GenerationRequest(LONGEST, sampling=sampling))
    return made.tokens


def alone(request: ServingRequest) -> list[int]:
    """The answer of a request alone: random numbers depend on the seed and the place only."""
    made = longest_answer(request.prompt, request.sampling)[: request.max_new_tokens]
    ends = [place for place, token in enumerate(made) if token in request.eos_ids]
    return made[: ends[0] + 1] if ends else made


def logits_after(text: list[int]) -> StepOutput:
    return one_row().prefill([text])[0]


def random_requests(rng: np.random.Generator, count: int) -> list[ServingRequest]:
    """Requests of 32 prompts of 1 to 30 tokens, of which many begin alike.

    Some answers end at a token that the request alone would choose.
    """
    tokens = load_tokenizer(smollm2_path()).encode(TEXT.read_text(encoding="utf-8"))
    begins = [tokens[place : place + 24] for place in (0, 100, 200)]
    prompts: list[tuple[int, ...]] = []
    for _ in range(32):
        place, size = rng.integers(300, len(tokens) - 6), rng.integers(1, 7)
        shared = begins[rng.integers(3)][: rng.integers(0, 25)]
        prompts.append((*shared, *tokens[place : place + size]))
    out: list[ServingRequest] = []
    for number in range(count):
        prompt = prompts[rng.integers(len(prompts))]
        sampling = SAMPLINGS[rng.integers(len(SAMPLINGS))]
        ends = longest_answer(prompt, sampling)[3:4] if rng.random() < 0.2 else []
        most, priority = int(rng.integers(1, LONGEST + 1)), int(rng.integers(0, 3))
        out.append(ServingRequest(str(number), prompt, most, frozenset(ends), sampling, priority))
    return out


@pytest.mark.slow
def test_each_answer_is_that_of_the_request_alone_on_smollm2():
    rng = np.random.default_rng(0)
    requests = random_requests(rng, 500)
    session = open_session(smollm2_path(), PAGED)
    with (
        patch.object(Scheduler, "_preempt", autospec=True, side_effect=Scheduler._preempt) as lost,
        patch.object(Session, "copy_block", autospec=True, side_effect=Session.copy_block) as copy,
    ):
        engine = ServingEngine(session)
        served = serve(engine, requests, rng)
    pool = engine.scheduler.pool
    assert isinstance(pool, BlockRows)
    assert pool.free == session.rows
    assert pool.blocks.available == BLOCKS
    assert not any(pool.blocks.counts)
    # Everything that a paged cache does has happened.
    assert lost.call_count > 0
    assert copy.call_count > 0
    assert pool.reused > 0
    finished = [request for request in requests if served[request.id][1] is not Finish.CANCELLED]
    assert 250 < len(finished) < 500
    flips = [
        leaves_at_a_tie(request, served[request.id][0], alone(request), logits_after, ROUNDING)
        for request in finished
    ]
    assert sum(flips) <= 5
    for request in finished:
        tokens, end = served[request.id]
        assert (end is Finish.EOS) == (tokens[-1] in request.eos_ids)
