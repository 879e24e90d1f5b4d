"""The OpenAPI document: it describes what the server does."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from starlette.testclient import TestClient

from graphgen.runtime.server.application import make_application
from tests.runtime.server.served import URL, Live, service_of
from tests.runtime.server.test_bodies import CHAT, COMPLETIONS, GOOD, WRONG

# What the tables refuse by the values of several fields, or of the model, no schema says.
BEYOND = ("context_length_exceeded", "GG0705", "unsupported_parameter", "empty_prompt")
RELATED = ("stream_options", "top_logprobs", "max_completion_tokens")


def document() -> Any:
    with TestClient(make_application(service_of()), base_url=URL) as client:
        return client.get("/openapi.json").json()


def test_bodies_match_their_schemas():
    made = document()
    schemas = made["components"]["schemas"]
    check = {
        COMPLETIONS: jsonschema_rs.validator_for(schemas["CompletionRequest"]),
        CHAT: jsonschema_rs.validator_for(schemas["ChatRequest"]),
    }
    for path, body in GOOD.items():
        assert check[path].is_valid(body)
    seen = 0
    for path, name, value, code in WRONG:
        # The document does not tell the size of the vocabulary.
        ids = ([10**6], [330], [[1], [2, 330]], {"99999": 1})
        of_values = "\\ud8" in json.dumps(value) or value in ids
        if code in BEYOND or name in RELATED or of_values:
            continue
        seen += 1
        assert not check[path].is_valid({**GOOD[path], name: value}), (path, name, value)
    assert seen > 20


def test_answers_match_their_schemas():
    with TestClient(make_application(service_of()), base_url=URL) as client:
        made = client.get("/openapi.json").json()
        for path, body in GOOD.items():
            response = made["paths"][path]["post"]["responses"]["200"]
            name = response["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            schema = made["components"]["schemas"][name]
            jsonschema_rs.validator_for(schema).validate(client.post(path, json=body).json())


def test_answers_are_strict_only_where_a_client_says_so():
    """As OpenAI documents it, for a schema of either endpoint."""
    schemas = document()["components"]["schemas"]
    chat = inner(schemas["ChatRequest"], "response_format", "json_schema")
    response = inner(schemas["ResponseRequest"], "text", "format")
    for form in (chat, response):
        assert form["properties"]["strict"]["default"] is False


def inner(schema: Any, *fields: str) -> Any:
    """The schema of an object in objects, each of which may be null."""
    for field in fields:
        schema, _ = schema["properties"][field]["anyOf"]
    return schema


def test_streamed_answers_match_their_schemas(server: Live):
    import schemathesis
    from schemathesis.specs.openapi import checks

    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    for path, body in GOOD.items():
        case = schema[path]["POST"].Case(
            body={**body, "stream": True}, media_type="application/json"
        )
        response = case.call(timeout=60)
        assert response.headers["content-type"][0].startswith("text/event-stream")
        wanted = [checks.content_type_conformance, checks.response_schema_conformance]
        case.validate_response(response, checks=wanted)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_schemathesis_finds_no_fault(server: Live, mode: str):
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    seen: list[int] = []
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # pyright: ignore[reportAttributeAccessIssue]
        # An endpoint without parameters has no wrong requests.
        if mode == "negative" and operation.method == "get":
            continue

        @settings(
            max_examples=150,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            phases=[Phase.explicit, Phase.generate],
        )
        @given(case=operation.as_strategy(GenerationMode(mode)))
        def check(case: Any) -> None:
            response = case.call(timeout=60)
            case.validate_response(response, checks=wanted)
            seen.append(response.status_code)

        check()
    assert (200 if mode == "positive" else 400) in seen
