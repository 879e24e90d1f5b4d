"""Requests that come and go at random on a model: each answer's tokens are those of it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.sampling import GREEDY, Sampling, choose_token
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest
from graphgen.runtime.session.row_results import StepOutput
from graphgen.runtime.session.session import Session
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session

SAMPLED = Sampling(do_sample=True, top_k=20, temperature=1.5)
SERVED = CompileConfig(
    batch=(2,), prefill_batch=(1,), rows=4, context=(8,), tokens=(16, 64), chunk=(4,)
)
# A bound on the difference of logits that the order of sums makes.
ROUNDING = 2e-5
LADDERS = replace(SERVED, batch=(1, 2, 4), prefill_batch=(1, 2), chunk=(4, 8))


@cache
def session_of(config: CompileConfig) -> Session:
    with TemporaryDirectory() as folder:
        write_llama(Path(folder))
        return open_session(Path(folder), config)


def alone(request: ServingRequest) -> list[int]:
    session = session_of(CompileConfig(context=(64,), tokens=(64,)))
    asked = GenerationRequest(request.max_new_tokens, request.eos_ids, sampling=request.sampling)
    (made,), _ = generate(session, [request.prompt], asked)
    return made.tokens


def flips(request: ServingRequest, tokens: list[int]) -> int:
    """0 for the tokens of the request alone, 1 if they leave them at two tokens that nearly tie."""

    def logits(text: list[int]) -> StepOutput:
        return session_of(CompileConfig(context=(64,), tokens=(64,))).prefill([text])[0]

    return leaves_at_a_tie(request, tokens, alone(request), logits, ROUNDING)


def leaves_at_a_tie(
    request: ServingRequest,
    tokens: list[int],
    wanted: list[int],
    logits: Callable[[list[int]], StepOutput],
    rounding: float,
) -> int:
    """0 for the tokens of the request alone, 1 if they leave them at two tokens that nearly tie.

    Programs of other sizes add in another order. What follows the first other token is not
    compared.

    Args:
        request: that was answered.
        tokens: its answer among others.
        wanted: its answer alone.
        logits: gives f32 [V], those after a text.
        rounding: a bound on the difference of logits that the order of sums makes.
    """
    if tokens == wanted:
        return 0
    pairs = enumerate(zip(tokens, wanted, strict=False))
    place = next((place for place, (one, other) in pairs if one != other), None)
    assert place is not None, request
    text = [*request.prompt, *tokens[:place]]
    found = logits(text).astype(np.float64)
    chosen: set[int] = set()
    for way in (rounding, -rounding):
        moved = found.copy()
        moved[tokens[place]] += way
        moved[wanted[place]] -= way
        chosen.add(choose_token(moved, text, request.sampling, 0, place))
    assert tokens[place] in chosen, (request, place, tokens, wanted)
    return 1


def random_requests(rng: np.random.Generator, count: int, vocabulary: int) -> list[ServingRequest]:
    """Prompts of which many begin alike; greedy and sampled ones."""
    begins = [rng.integers(1, vocabulary, 24).tolist() for _ in range(3)]
    out: list[ServingRequest] = []
    for number in range(count):
        shared = begins[rng.integers(3)][: rng.integers(0, 25)]
        own = rng.integers(1, vocabulary, rng.integers(1, 12)).tolist()
        sampling = GREEDY if number % 2 else Sampling(**{**vars_of(SAMPLED), "seed": number})
        out.append(
            ServingRequest(
                str(number),
                (*shared, *own),
                int(rng.integers(1, 12)),
                frozenset(rng.integers(0, vocabulary, 3).tolist()),
                sampling,
                priority=int(rng.integers(0, 3)),
            )
        )
    return out


def vars_of(sampling: Sampling) -> dict[str, object]:
    return {name: getattr(sampling, name) for name in sampling.__dataclass_fields__}


def serve(
    engine: ServingEngine, requests: list[ServingRequest], rng: np.random.Generator
) -> dict[str, tuple[list[int], Finish]]:
    """Tokens and end of each request; some are cancelled."""
    tokens: dict[str, list[int]] = {}
    ends: dict[str, Finish] = {}
    coming = list(requests)
    while coming or engine.busy:
        for _ in range(rng.poisson(0.7)):
            if coming:
                tokens[coming[0].id] = []
                engine.submit(coming.pop(0))
        if rng.random() < 0.05 and (some := tokens.keys() - ends.keys()):
            name = str(rng.choice(sorted(some)))
            assert engine.cancel(name) is not None
            ends[name] = Finish.CANCELLED
        for event in engine.step():
            if event.token is not None:
                tokens.setdefault(event.id, []).append(event.token)
            if event.finish is not None:
                ends[event.id] = event.finish
    return {name: (tokens.get(name, []), end) for name, end in ends.items()}


@pytest.mark.parametrize(
    ("config", "seed", "count"),
    [
        pytest.param(SERVED, 0, 24, id="f32"),
        pytest.param(LADDERS, 1, 500, id="f32-many", marks=pytest.mark.slow),
    ],
)
def test_each_answer_is_that_of_the_request_alone(config: CompileConfig, seed: int, count: int):
    rng = np.random.default_rng(seed)
    session = session_of(config)
    engine = ServingEngine(session)
    requests = random_requests(rng, count, 97)
    served = serve(engine, requests, rng)
    assert engine.scheduler.pool.free == session.rows
    finished = [request for request in requests if served[request.id][1] is not Finish.CANCELLED]
    assert count // 2 < len(finished) < count
    assert sum(flips(request, served[request.id][0]) for request in finished) <= count // 100
    for request in finished:
        tokens, end = served[request.id]
        assert (end is Finish.EOS) == (tokens[-1] in request.eos_ids)


def test_a_launch_that_fails_ends_what_has_a_row_and_the_rest_goes_on():
    session = session_of(SERVED)
    engine = ServingEngine(session)
    requests = random_requests(np.random.default_rng(3), 6, 97)
    for request in requests:
        engine.submit(request)
    engine.step()
    running = {progress.request.id for progress in engine.scheduler.running}

    class Broken:
        def before_launch(self, session: Session, program: str, inputs: object) -> None:
            raise RuntimeError("the device is gone")

        def after_launch(self, session: Session, program: str) -> None: ...

    session.observers.append(Broken())
    events = engine.step()
    session.observers.clear()
    failed = {event.id: event.error for event in events if event.finish is Finish.ERROR}
    assert failed
    assert set(failed.values()) == {"the device is gone"}
    rest = serve(engine, [], np.random.default_rng(4))
    assert rest.keys() | failed.keys() >= {request.id for request in requests} - {
        event.id for event in events
    }
    for request in requests:
        if request.id in rest and request.id not in running:
            assert rest[request.id][0] == alone(request)
    again = ServingRequest("again", requests[0].prompt, 4)
    engine.submit(again)
    tokens = [event.token for _ in range(12) for event in engine.step()]
    assert tokens == alone(again)


class Launches:
    """Programs that a session launches, with the number of tokens."""

    def __init__(self) -> None:
        self.tokens: list[tuple[str, int]] = []

    def before_launch(
        self, session: Session, program: str, inputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        real = np.asarray(inputs["positions"], np.int32) >= 0
        self.tokens.append((program, int(real.sum())))

    def after_launch(self, session: Session, program: str) -> None: ...


def four_answers(config: CompileConfig) -> tuple[ServingEngine, list[tuple[str, int]]]:
    """Four answers to a prompt of seven tokens, each as alone: the engine, and its launches."""
    session = session_of(config)
    prompt = tuple(np.random.default_rng(5).integers(1, 97, 7).tolist())
    how = vars_of(SAMPLED)
    requests = [
        ServingRequest(str(seed), prompt, 6, sampling=Sampling(**{**how, "seed": seed}))
        for seed in range(4)
    ]
    engine = ServingEngine(session)
    for request in requests:
        engine.submit(request)
    launches = Launches()
    session.observers.append(launches)
    served = serve(engine, [], np.random.default_rng(0))
    session.observers.clear()
    assert {name: tokens for name, (tokens, _) in served.items()} == {
        request.id: alone(request) for request in requests
    }
    return engine, launches.tokens


@pytest.mark.parametrize("tp", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_several_answers_to_one_prompt_run_it_once(tp: int):
    _, launches = four_answers(replace(SERVED, tp=tp))
    prompts = [count for name, count in launches if name.startswith("prefill")]
    assert sum(prompts) == 7


def test_a_prompt_that_no_program_takes_is_refused():
    engine = ServingEngine(session_of(SERVED))
    with pytest.raises(GraphgenError) as caught:
        engine.submit(ServingRequest("long", (1,) * 65))
    assert caught.value.code == "GG0701"
    assert not engine.busy
