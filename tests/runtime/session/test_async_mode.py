"""Steps that start before the last tokens are read give the same tokens, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.generation import Completion, GenerationRequest, generate
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest
from graphgen.runtime.session.async_conditions import check_async
from graphgen.runtime.session.pending_step import DeviceToken
from graphgen.runtime.session.session import Session
from tests.oracles.llama import SIZES, write_llama
from tests.oracles.sessions import open_session

GREEDY_PROGRAMS = CompileConfig(
    batch=(1, 2, 4),
    prefill_batch=(1,),
    rows=4,
    context=(8,),
    tokens=(12, 16, 32),
    chunk=(4,),
    sampling="on-device-sampling",
)
DRAWING = "on-device-sampling{do_sample=true,global_topk=40}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    write_llama(path)
    return path


@pytest.fixture(scope="module")
def session(folder: Path) -> Session:
    return open_session(folder, GREEDY_PROGRAMS)


@pytest.fixture(scope="module")
def drawing(folder: Path) -> Session:
    return open_session(folder, replace(GREEDY_PROGRAMS, sampling=DRAWING))


def prompts_of(seed: int, count: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, SIZES["vocab_size"], rng.integers(1, 9)).tolist() for _ in range(count)]


def both(
    session: Session, prompts: Sequence[Sequence[int]], request: GenerationRequest
) -> tuple[list[Completion], list[tuple[int, int]]]:
    """Answers with steps in flight, which are those without, and the order of their tokens."""
    order: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    made = {
        mode: generate(
            session,
            prompts,
            request,
            lambda row, token, mode=mode: order[mode].append((row, token)),
            async_mode=mode,
        )[0]
        for mode in order
    }
    assert made[True] == made[False]
    assert order[True] == order[False]
    return made[True], order[True]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_answers_are_the_same_beyond_every_bucket(session: Session, count: int):
    answers, _ = both(session, prompts_of(count, count), GenerationRequest(60))
    assert all(answer.finish_reason == "length" for answer in answers)
    assert all(len(answer.tokens) > 20 for answer in answers)


def test_rows_that_end_in_flight_drop_a_token(session: Session):
    prompts = prompts_of(7, 4)
    plain, _ = both(session, prompts, GenerationRequest(16))
    ends = frozenset(answer.tokens[3 + row] for row, answer in enumerate(plain))
    answers, _ = both(session, prompts, GenerationRequest(16, ends))
    assert {answer.finish_reason for answer in answers} >= {"eos"}
    assert len({len(answer.tokens) for answer in answers}) > 1
    both(session, prompts, GenerationRequest(1))


def test_drawn_tokens_are_the_same(drawing: Session):
    how = [Sampling(do_sample=True, top_k=20, temperature=1.5, seed=seed) for seed in range(3)]
    answers, _ = both(drawing, prompts_of(9, 4), GenerationRequest(12, sampling=[*how, GREEDY]))
    other, _ = both(drawing, prompts_of(9, 4), GenerationRequest(12))
    assert answers[0] != other[0]
    assert answers[3] == other[3]


@pytest.mark.slow
def test_two_ranks_give_the_same(folder: Path):
    both(
        open_session(folder, replace(GREEDY_PROGRAMS, tp=2)),
        prompts_of(3, 4),
        GenerationRequest(20),
    )


def test_a_step_starts_before_the_last_one_is_read(session: Session):
    session.reset()
    first = session.start([[5, 6, 7]], [[0, 1, 2]], [2])
    second = session.start([[0]], [[3]], [2], fed={0: DeviceToken(first, 0)})
    third = session.start([[0], [9]], [[4], [0]], [2, 0], fed={0: DeviceToken(second, 0)})
    got = [int(session.answer(step.read())[0]) for step in (first, second, third)]
    (alone,), _ = generate(session, [[5, 6, 7]], GenerationRequest(3))
    assert got == alone.tokens


def served(engine: ServingEngine, requests: list[ServingRequest]) -> dict[str, object]:
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    ends: dict[str, Finish] = {}
    rng, coming = np.random.default_rng(5), list(requests)
    while coming or engine.busy:
        for _ in range(rng.poisson(0.8)):
            if coming:
                engine.submit(coming.pop(0))
        for event in engine.step():
            if event.token is not None:
                tokens[event.id].append(event.token)
            if event.finish is not None:
                ends[event.id] = event.finish
    assert engine.scheduler.pool.free == len(engine.scheduler.pool.rows)
    return {"tokens": tokens, "ends": ends}


def test_served_requests_have_the_same_tokens(drawing: Session):
    how = {"do_sample": True, "top_k": 20, "temperature": 1.5}
    requests = [
        ServingRequest(
            str(number),
            (*range(number % 3 * 5), *prompt),
            1 + number % 9,
            frozenset(prompts_of(number + 50, 1)[0]),
            Sampling(**how, seed=number) if number % 2 else GREEDY,
            priority=number % 2,
        )
        for number, prompt in enumerate(prompts_of(11, 24))
    ]
    on = served(ServingEngine(drawing, async_mode=True), requests)
    assert on == served(ServingEngine(drawing), requests)


def test_nothing_is_compiled_after_the_warm_up(folder: Path, monkeypatch: pytest.MonkeyPatch):
    small = CompileConfig(
        batch=(1, 2), rows=2, context=(8,), tokens=(16,), sampling="on-device-sampling"
    )
    engine = ServingEngine(open_session(folder, small), async_mode=True)
    engine.warm_up()

    def refuse(cache: ExecutableCache, name: str) -> None:
        raise AssertionError(f"{name} is compiled while a request waits")

    monkeypatch.setattr(ExecutableCache, "_make", refuse)
    prompt = tuple(range(1, 7))
    requests = [ServingRequest(name, prompt, 5) for name in "ab"]
    found = served(engine, requests)
    assert found["ends"] == {"a": Finish.LENGTH, "b": Finish.LENGTH}


def test_programs_that_give_logits_are_refused(folder: Path):
    logits = open_session(folder, CompileConfig(context=(8,), tokens=(16,)))
    for refused in (
        lambda: check_async(logits),
        lambda: ServingEngine(logits, async_mode=True),
        lambda: generate(logits, [[1]], GenerationRequest(2), async_mode=True),
    ):
        with pytest.raises(GraphgenError, match="async_mode needs programs that choose") as caught:
            refused()
        assert "--on-device-sampling" in (caught.value.help or "")
