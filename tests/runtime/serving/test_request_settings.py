"""Stop strings, log probabilities, bias and masks of one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling import GREEDY, Sampling, choose_token
from graphgen.runtime.serving.request_choice import (
    MaskError,
    logprobs_of,
    next_token,
    penalized_bias,
)
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest, TokenEvent
from tests.runtime.serving.fake_session import (
    VOCABULARY,
    FakeSession,
    Letters,
    answer,
    as_session,
    text_of,
)


def events_of(engine: ServingEngine, request: ServingRequest) -> list[TokenEvent]:
    engine.submit(request)
    events: list[TokenEvent] = []
    while engine.busy:
        events += engine.step()
    return events


def served(request: ServingRequest) -> list[TokenEvent]:
    session = FakeSession(2, 64, 0, 1)
    return events_of(ServingEngine(as_session(session), tokenizer=Letters()), request)


def test_log_probabilities_are_those_of_the_unmodified_logits():
    logits = np.random.default_rng(0).normal(0, 4, 50).astype(np.float32)
    expected = torch.log_softmax(torch.from_numpy(logits).double(), 0)
    best = torch.topk(expected, 5)
    made = logprobs_of(logits, 7, 5)
    assert made.chosen == pytest.approx(float(expected[7]), abs=1e-12)
    assert [token for token, _ in made.top] == best.indices.tolist()
    assert [value for _, value in made.top] == pytest.approx(best.values.tolist(), abs=1e-12)
    assert logprobs_of(logits, 7, 0).top == ()
    assert logprobs_of(np.zeros(4, np.float32), 1, 2).top[0][0] == 0


def test_log_probabilities_come_with_each_token():
    request = ServingRequest(
        "a", (1, 2), 4, logprobs=2, sampling=Sampling(do_sample=True, top_k=1), logit_bias={3: 9.0}
    )
    events = served(request)
    assert [event.token for event in events] == [3] * 4
    for event in events:
        assert event.logprobs is not None
        raw = {0.0: 10, 1.0: 1}
        total = np.log(sum(count * np.exp(value) for value, count in raw.items()))
        assert event.logprobs.top[0][1] == pytest.approx(1 - total)
        assert event.logprobs.chosen in (pytest.approx(1 - total), pytest.approx(-total))
    assert all(event.logprobs is None for event in served(ServingRequest("b", (1,), 2)))


def test_a_bias_of_minus_a_hundred_bans_a_token():
    plain = [event.token for event in served(ServingRequest("a", (1,), 1))]
    banned = ServingRequest("a", (1,), 1, logit_bias={plain[0] or 0: -100.0})
    assert [event.token for event in served(banned)] != plain


@pytest.mark.parametrize("how", [GREEDY, Sampling(do_sample=True, seed=3)], ids=["best", "drawn"])
def test_a_mask_sees_the_tokens_so_far_and_decides(how: Sampling):
    seen: list[list[int]] = []

    def one_more(tokens: Sequence[int]) -> npt.NDArray[np.bool_] | None:
        seen.append(list(tokens))
        return np.arange(VOCABULARY) == len(tokens) + 2

    request = ServingRequest("a", (1,), 4, sampling=how, mask=one_more)
    assert [event.token for event in served(request)] == [2, 3, 4, 5]
    assert seen == [[], [2], [2, 3], [2, 3, 4]]


def test_a_mask_that_allows_nothing_ends_the_request_with_an_error():
    request = ServingRequest("a", (1,), 4, mask=lambda _: np.zeros(VOCABULARY, np.bool_))
    (event,) = served(request)
    assert (event.token, event.finish) == (None, Finish.ERROR)
    assert "the mask allows no token" in event.error
    short = ServingRequest("a", (1,), 4, mask=lambda _: np.ones(2, np.bool_))
    assert "the mask of allowed tokens is bool[2], not bool[11]" in served(short)[0].error


def test_a_mask_that_gives_up_refuses_its_request():
    def first_alone(tokens: Sequence[int]) -> npt.NDArray[np.bool_] | None:
        if tokens:
            raise MaskError("GG0705", "too many states")
        return None

    first, last = served(ServingRequest("a", (1,), 4, mask=first_alone))
    assert first.finish is None
    assert (last.token, last.finish, last.error) == (None, Finish.REFUSED, "too many states")


def test_a_mask_of_all_tokens_changes_nothing():
    logits = np.random.default_rng(1).normal(0, 2, 30).astype(np.float32)
    how = Sampling(do_sample=True, top_p=0.9, repetition_penalty=1.2)
    for step in range(20):
        plain = next_token(logits, [1, 2], how, 0, step, bias={}, allowed=None)
        masked = next_token(logits, [1, 2], how, 0, step, bias={}, allowed=np.ones(30, np.bool_))
        assert plain == masked


@pytest.mark.parametrize("how", [GREEDY, Sampling(do_sample=True, seed=5)], ids=["best", "drawn"])
@pytest.mark.parametrize(
    ("frequency", "presence", "repetition"),
    [(0.7, 0, 1), (0, 1.5, 1), (-0.3, 0.4, 1), (0, 0, 1.8), (0.5, -0.2, 1.3)],
)
def test_penalties_are_those_of_the_formulas(
    how: Sampling, frequency: float, presence: float, repetition: float
):
    rng = np.random.default_rng(2)
    how = replace(how, repetition_penalty=repetition)
    prompt, made, plain = [3, 3, 4], [1], []
    for step in range(1, 30):
        # Close together, so that penalties decide.
        logits = rng.normal(0, 0.5, 8).astype(np.float32)
        count = np.bincount(made, minlength=8)
        expected = logits - count * frequency - (count > 0) * presence
        known = np.isin(np.arange(8), [*prompt, *made])
        scaled = np.where(expected < 0, expected * repetition, expected / repetition)
        expected = np.where(known, scaled, expected)
        plain.append(choose_token(logits, [], replace(how, repetition_penalty=1), 0, step))
        wanted = choose_token(expected, [], replace(how, repetition_penalty=1), 0, step)
        bias = penalized_bias({}, made, frequency, presence)
        got = next_token(logits, [*prompt, *made], how, 0, step, bias=bias, allowed=None)
        assert got == wanted
        made.append(got)
    assert made[1:] != plain


def test_penalties_are_added_to_the_bias():
    assert penalized_bias({1: 2.0, 5: 3.0}, [1, 1, 4], 0.5, 0.25) == {1: 0.75, 4: -0.75, 5: 3.0}
    assert penalized_bias({1: 2.0}, [1], 0, 0) == {1: 2.0}


def test_a_stop_string_ends_the_answer_and_is_cut_off():
    tokens = answer((1, 1), 12, 64)
    text = text_of(tokens)
    assert len(text) > 4
    events = served(ServingRequest("a", (1, 1), 12, stop=(text[2:4],)))
    assert "".join(event.text for event in events) == text[: text.index(text[2:4])]
    assert events[-1].finish is Finish.STOP
    assert [event.token for event in events] == tokens[: text.index(text[2:4]) + 2]


def test_what_is_held_back_comes_with_the_end():
    text = text_of(answer((1, 1), 3, 64))
    events = served(ServingRequest("a", (1, 1), 3, stop=(text + "!",)))
    assert [event.text for event in events] == ["", "", text]
    assert events[-1].finish is Finish.LENGTH


def allow_all(tokens: Sequence[int]) -> None:
    return None


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (ServingRequest("x", (1,), logprobs=0), "logprobs needs logits"),
        (ServingRequest("x", (1,), logit_bias={1: 2.0}), "logit_bias needs logits"),
        (ServingRequest("x", (1,), mask=allow_all), "mask needs logits"),
        (ServingRequest("x", (1,), frequency_penalty=1.0), "frequency_penalty needs logits"),
        (ServingRequest("x", (1,), presence_penalty=-1.0), "presence_penalty needs logits"),
        (
            ServingRequest("x", (1,), sampling=Sampling(repetition_penalty=1.2)),
            "repetition_penalty needs logits",
        ),
    ],
    ids=["logprobs", "bias", "mask", "frequency", "presence", "repetition"],
)
def test_programs_that_choose_refuse_by_name(request_: ServingRequest, what: str):
    session = FakeSession(1, 64, 0, 1)
    session.chooses, session.vocabulary = True, 0
    with pytest.raises(GraphgenError, match=what) as caught:
        ServingEngine(as_session(session)).submit(request_)
    assert "compile" in (caught.value.help or "")


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (ServingRequest("x", (1,), stop=("",)), "a stop string is empty"),
        (ServingRequest("x", (1,), stop=("a",)), "has no tokenizer"),
        (ServingRequest("x", (1,), logprobs=12), "logprobs is 12, not from 0 to 11"),
        (ServingRequest("x", (1,), logprobs=-1), "logprobs is -1"),
        (ServingRequest("x", (1,), logit_bias={11: 1.0}), "logit_bias of token 11"),
        (ServingRequest("x", (1,), logit_bias={1: float("nan")}), "logit_bias of token 1 is nan"),
        (ServingRequest("x", (1,), presence_penalty=np.inf), "presence_penalty is inf"),
    ],
    ids=["empty", "no-text", "many", "negative", "token", "nan", "inf"],
)
def test_bad_values_are_refused_at_once(request_: ServingRequest, what: str):
    engine = ServingEngine(as_session(FakeSession(1, 64, 0, 1)))
    with pytest.raises(GraphgenError, match=what):
        engine.submit(request_)
    assert not engine.busy
