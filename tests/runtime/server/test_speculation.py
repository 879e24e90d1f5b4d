"""A server that speculates: the answers of one that does not, and counts of proposed tokens."""

from __future__ import annotations

import json
import logging
from copy import deepcopy
from typing import Any

import jsonschema_rs
import pytest
from starlette.testclient import TestClient

from graphgen.runtime.server.application import make_application
from graphgen.runtime.speculation.draft_model import DraftModel
from graphgen.runtime.speculation.speculator import Speculator
from tests.runtime.server.served import NAME, URL, engine_of, service_of

LENGTH = 4
COMPLETIONS = "/v1/completions"
REQUESTS: list[dict[str, Any]] = [
    {"prompt": "the cat sat on the cat sat on the", "max_tokens": 40, "ignore_eos": True},
    {"prompt": "b", "max_tokens": 30, "logprobs": 2},
    {"prompt": "one two one two one", "max_tokens": 21, "stop": ["a"], "frequency_penalty": 0.3},
    {"prompt": ["x x x x", "y y y"], "max_tokens": 17, "n": 2, "logit_bias": {"5": 2}},
]


def speculating() -> TestClient:
    """A client of a server whose draft is the model itself."""
    engine = engine_of(verifies=LENGTH)
    draft = DraftModel(engine.session, engine.session.vocabulary)
    return TestClient(make_application(service_of(engine, Speculator(draft, LENGTH))), base_url=URL)


def answers(client: TestClient) -> list[Any]:
    made: list[Any] = []
    for request in REQUESTS:
        response = client.post(COMPLETIONS, json={"model": NAME, "temperature": 0, **request})
        assert response.status_code == 200, response.text
        made.append(response.json())
    return made


def test_answers_are_those_of_plain_serving_and_proposals_are_counted(
    client: TestClient, caplog: pytest.LogCaptureFixture
):
    plain = answers(client)
    caplog.clear()
    with caplog.at_level(logging.INFO, "graphgen.server"), speculating() as speculative:
        made = answers(speculative)
        document = speculative.get("/openapi.json").json()
        lines = speculative.get("/metrics").text.splitlines()
    accepted, rejected, first = 0, 0, deepcopy(made[0])
    for one, other in zip(plain, made, strict=True):
        assert [c["text"] for c in other["choices"]] == [c["text"] for c in one["choices"]]
        ends = [c["finish_reason"] for c in one["choices"]]
        assert [c["finish_reason"] for c in other["choices"]] == ends
        details = other["usage"].pop("completion_tokens_details", {})
        assert other["usage"] == one["usage"]
        accepted += details.get("accepted_prediction_tokens", 0)
        rejected += details.get("rejected_prediction_tokens", 0)
    assert accepted > 10
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["graphgen_speculation_accepted_tokens_total"]) == accepted
    assert float(values["graphgen_speculation_proposed_tokens_total"]) == accepted + rejected
    assert 0 < float(values["graphgen_speculation_verifications_total"]) <= accepted + rejected
    facts = [vars(r)["facts"] for r in caplog.records if hasattr(r, "facts")]
    assert sum(fact.get("accepted_tokens", 0) for fact in facts) == accepted
    assert sum(fact.get("proposed_tokens", 0) for fact in facts) == accepted + rejected
    response = document["paths"][COMPLETIONS]["post"]["responses"]["200"]
    name = response["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    check = jsonschema_rs.validator_for(document["components"]["schemas"][name])
    check.validate(first)


def test_a_stream_has_the_same_text_and_ends_with_the_counts(client: TestClient):
    request = {"model": NAME, "temperature": 0, **REQUESTS[0]}
    whole = client.post(COMPLETIONS, json=request).json()
    asked = {**request, "stream": True, "stream_options": {"include_usage": True}}
    with speculating() as speculative:
        text = speculative.post(COMPLETIONS, json=asked).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    pieces = [choice["text"] for event in events for choice in event["choices"]]
    assert "".join(pieces) == whole["choices"][0]["text"]
    details = events[-1]["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > 0
