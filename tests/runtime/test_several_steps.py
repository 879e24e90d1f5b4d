"""Several steps a launch give the tokens that single steps give."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.generation import Completion, GenerationRequest, generate
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.session.session import Session
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session

STEPS = 4
BEST = CompileConfig(
    batch=(1, 3),
    rows=4,
    context=(8,),
    tokens=(12, 16, 32),
    sampling="on-device-sampling",
    steps_per_launch=STEPS,
)
DRAWING = replace(BEST, sampling="on-device-sampling{do_sample=true,global_topk=40}")
DRAWN = Sampling(do_sample=True, top_k=20, top_p=0.9, seed=7)
PROMPTS = [[5, 9, 3, 7, 2], [4], [6, 1, 8]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    write_llama(path)
    return path


@pytest.fixture(scope="module")
def session(folder: Path) -> Session:
    return open_session(folder, BEST)


class Launches:
    """The programs that were launched."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def before_launch(self, session: Session, program: str, inputs: object) -> None:
        self.names.append(program)

    def after_launch(self, session: Session, program: str) -> None:
        pass


def answers(
    session: Session, request: GenerationRequest, *, several: bool = True
) -> tuple[list[Completion], list[str], list[int]]:
    """The answers, the programs launched, and the lengths of all rows at the end."""
    seen = Launches()
    session.observers.append(seen)
    steps, session.steps = session.steps, session.steps if several else 1
    try:
        done, timings = generate(session, PROMPTS, request)
    finally:
        session.steps = steps
        session.observers.remove(seen)
    assert len(timings.steps) == max(len(one.tokens) for one in done) - 1
    return done, seen.names, session.lengths.tolist()


def compared(
    session: Session, count: int, eos: Collection[int] = (), how: Sampling = GREEDY
) -> list[Completion]:
    """The answers by several steps, after a comparison with those by single ones."""
    request = GenerationRequest(count, eos, sampling=how)
    single, one, lengths = answers(session, request, several=False)
    several, launched, after = answers(session, request)
    assert several == single
    assert after == lengths
    assert not any(name.endswith(".n4") for name in one)
    assert any(name.endswith(".n4") for name in launched)
    return several


@pytest.mark.parametrize("count", [3, 13, 40])
def test_rows_of_different_lengths_over_all_buckets(session: Session, count: int):
    done = compared(session, count)
    # The last tokens are beyond the cache of 32 slots.
    assert [len(one.tokens) for one in done] == [min(count, 33 - len(p)) for p in PROMPTS]


def test_the_last_step_is_one_alone(session: Session):
    _, launched, _ = answers(session, GenerationRequest(6))
    assert launched[1:] == ["decode.b3.c12.n4", "decode.b3.c12"]


def test_a_row_ends_in_the_middle_of_a_launch(session: Session):
    free, _, _ = answers(session, GenerationRequest(13))
    end = next(t for t in free[0].tokens[2:] if t not in free[1].tokens)
    done = compared(session, 13, [end])
    assert done[0].finish_reason == "eos"
    assert done[1].finish_reason == "length"


def test_more_ends_than_a_program_takes_go_by_single_steps(session: Session):
    done, launched, _ = answers(session, GenerationRequest(6, range(500, 509)))
    assert done == answers(session, GenerationRequest(6))[0]
    assert not any(name.endswith(".n4") for name in launched)


def test_a_row_goes_on_after_it_ended_in_a_launch(session: Session):
    free, _, _ = answers(session, GenerationRequest(13))
    answers(session, GenerationRequest(13, [free[0].tokens[5]]))
    length = int(session.lengths[0])
    text = [*PROMPTS[0], *free[0].tokens]
    assert length <= len(PROMPTS[0]) + 5
    rest = session.step([text[length : length + 1]], [[length]], [0]).tokens
    assert rest is not None
    assert int(rest[0]) == text[length + 1]


@pytest.mark.parametrize("how", [GREEDY, DRAWN, replace(DRAWN, seed=1)], ids=["best", "7", "1"])
@pytest.mark.one_in(3)
def test_drawn_tokens_have_the_same_random_numbers(folder: Path, how: Sampling):
    compared(open_session(folder, DRAWING), 13, how=how)


@pytest.mark.parametrize(
    "changes",
    [{"tp": 2}, {"page_cache": 4}, {"kernels": "on", "dtype": "bf16"}],
    ids=str,
)
@pytest.mark.one_in(3)
def test_other_compilations(folder: Path, changes: dict[str, object]):
    compared(open_session(folder, BEST.updated(changes)), 13)


def test_warm_up_changes_no_row(session: Session):
    before, _, _ = answers(session, GenerationRequest(13))
    states = [np.asarray(session.state("model.layers.0.self_attn.k_cache"))]
    session.warm_up()
    after = np.asarray(session.state("model.layers.0.self_attn.k_cache"))
    np.testing.assert_array_equal(states[0], after)
    assert answers(session, GenerationRequest(13))[0] == before
