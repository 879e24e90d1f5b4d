"""Servers of models on ranks and of programs that choose tokens: the tokens of the engine alone."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.server.application import make_application
from tests.runtime.server.served import NAME, URL, engine_of, service_of
from tests.runtime.server.test_answers import answer

DRAWS = "on-device-sampling{do_sample=true,global_topk=40}"
CHOOSES = "on-device-sampling"
TEXTS = ["The llama said", "It's 2024: don't panic, we'll count to 1000000!", "fine", "a", "12"]
DRAWN = {"temperature": 1.5, "top_k": 20, "top_p": 0.9}


@pytest.mark.parametrize("how", ["best", "drawn"])
@pytest.mark.parametrize(
    "compiled",
    [
        {"tp": 2},
        {"sampling": CHOOSES},
        {"sampling": DRAWS},
        {"tp": 2, "sampling": DRAWS},
        {"sampling": DRAWS, "async_mode": True},
    ],
    ids=["ranks", "chooses", "draws", "ranks-draw", "in-flight"],
)
@pytest.mark.one_in(2)
def test_answers_are_those_of_the_engine_alone(compiled: dict[str, Any], how: str):
    if how == "drawn" and compiled.get("sampling") == CHOOSES:
        pytest.skip("these programs take the best token")
    # Steps in flight have the tokens of those that wait.
    served, engine = engine_of(**compiled), engine_of(**{**compiled, "async_mode": False})
    sampling, body = GREEDY, dict[str, Any](temperature=0)
    if how == "drawn":
        sampling, body = Sampling(do_sample=True, seed=7, **DRAWN), {**DRAWN, "seed": 7}
    wanted: list[str] = []
    for text in TEXTS:
        request = GenerationRequest(10, engine.tokenizer.eos_ids, sampling=sampling)
        (made,) = engine.generate([engine.tokenizer.encode(text)], request).completions
        wanted.append(engine.tokenizer.decode(made.tokens))
    with TestClient(make_application(service_of(served)), base_url=URL) as client:
        choices = answer(client, prompt=TEXTS, max_tokens=10, **body)["choices"]
        assert [choice["text"] for choice in choices] == wanted
        # Rows that hold a prompt go on by other programs.
        again = answer(client, prompt=TEXTS, max_tokens=10, **body)["choices"]
        assert [choice["text"] for choice in again] == wanted
    assert len(set(wanted)) > 2


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({"logprobs": 1}, "logprobs needs logits"),
        ({"logit_bias": {"5": 1}}, "logit_bias needs logits"),
        ({"frequency_penalty": 1}, "frequency_penalty needs logits"),
        ({"repetition_penalty": 1.1}, "repetition_penalty needs logits"),
        ({"response_format": {"type": "json_object"}}, "mask needs logits"),
        ({"temperature": 0.5}, "they take the best"),
        ({"prompt": [330]}, "token ids are below 330"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_programs_that_choose_refuse_by_name(body: dict[str, Any], what: str):
    with TestClient(
        make_application(service_of(engine_of(sampling=CHOOSES))), base_url=URL
    ) as client:
        full = {"model": NAME, "prompt": "a", "temperature": 0, "max_tokens": 2, **body}
        response = client.post("/v1/completions", json=full)
        assert response.status_code == 400
        assert what in response.json()["error"]["message"]
