"""Bodies that are wrong: each is refused by the name of what is wrong, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from graphgen.runtime.server.answer_grammar import AnswerGrammars
from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.request_fields import CHAT_FIELDS, COMPLETION_FIELDS, LABELS, UNBUILT
from graphgen.runtime.serving.request_choice import MaskError
from tests.runtime.server.served import LENGTH, NAME, URL, service_of, small_engine
from tests.runtime.server.test_answers import PROMPT, answer
from tests.runtime.server.test_settings import MESSAGES

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
GOOD: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"model": NAME, "prompt": "a", "max_tokens": 1},
    CHAT: {"model": NAME, "messages": MESSAGES, "max_tokens": 1},
}
JSON = {"content-type": "application/json"}
# Changes of a good body: the field at fault, its value, the code of the error.
WRONG: list[tuple[str, str, object, str]] = [
    (COMPLETIONS, "max_token", 3, "unknown_parameter"),
    (COMPLETIONS, "max_tokens", -1, "integer_below_min_value"),
    (COMPLETIONS, "max_tokens", "3", "invalid_type"),
    (COMPLETIONS, "max_tokens", 1.5, "invalid_type"),
    (COMPLETIONS, "max_tokens", True, "invalid_type"),
    (COMPLETIONS, "max_tokens", LENGTH, "context_length_exceeded"),
    (COMPLETIONS, "temperature", 2.5, "decimal_above_max_value"),
    (COMPLETIONS, "temperature", 1e-40, "GG0705"),
    (COMPLETIONS, "top_p", -0.1, "decimal_below_min_value"),
    (COMPLETIONS, "prompt", "", "empty_prompt"),
    (COMPLETIONS, "prompt", [], "invalid_type"),
    (COMPLETIONS, "prompt", [[]], "invalid_array_length"),
    (COMPLETIONS, "prompt", [1, "a"], "invalid_type"),
    (COMPLETIONS, "prompt", [1, -1], "integer_below_min_value"),
    (COMPLETIONS, "prompt", [10**6], "invalid_value"),
    (COMPLETIONS, "prompt", [330], "invalid_value"),
    (COMPLETIONS, "prompt", [[1], [2, 330]], "invalid_value"),
    (COMPLETIONS, "prompt", "\ud800", "invalid_value"),
    (COMPLETIONS, "prompt", ["a"] * 129, "invalid_array_length"),
    (COMPLETIONS, "n", 129, "integer_above_max_value"),
    (COMPLETIONS, "stop", [""], "invalid_value"),
    (COMPLETIONS, "stop", ["a"] * 5, "invalid_array_length"),
    (COMPLETIONS, "logprobs", 6, "integer_above_max_value"),
    (COMPLETIONS, "logit_bias", {"a": 1}, "invalid_value"),
    (COMPLETIONS, "logit_bias", {"1": 101}, "integer_above_max_value"),
    (COMPLETIONS, "logit_bias", {"99999": 1}, "invalid_value"),
    (COMPLETIONS, "suffix", "x", "unsupported_parameter"),
    (COMPLETIONS, "best_of", 2, "unsupported_parameter"),
    (COMPLETIONS, "stream_options", {"include_usage": True}, "invalid_value"),
    (COMPLETIONS, "seed", 2**63, "integer_above_max_value"),
    (CHAT, "messages", [], "invalid_array_length"),
    (CHAT, "messages", "hello", "invalid_type"),
    (CHAT, "max_completion_tokens", 2, "invalid_value"),
    (CHAT, "top_logprobs", 2, "invalid_value"),
    (CHAT, "tools", [{"type": "function"}], "missing_required_parameter"),
    (CHAT, "tools", [{"type": "custom", "custom": {"name": "x"}}], "invalid_value"),
    (CHAT, "tools", [{"type": "web_search", "function": {"name": "x"}}], "invalid_value"),
    (CHAT, "tools", [{"type": "function", "function": {"name": "a b"}}], "invalid_value"),
    (CHAT, "tool_choice", "any", "invalid_value"),
    (CHAT, "tool_choice", {"type": "allowed_tools"}, "invalid_value"),
    (CHAT, "tool_choice", 3, "invalid_type"),
    (CHAT, "reasoning_effort", "high", "unsupported_parameter"),
    (CHAT, "reasoning_effort", "hard", "invalid_value"),
    (CHAT, "frequency_penalty", 2.5, "decimal_above_max_value"),
    (CHAT, "presence_penalty", -2.1, "decimal_below_min_value"),
    (CHAT, "repetition_penalty", 0, "integer_below_min_value"),
    (CHAT, "response_format", {"type": "xml"}, "invalid_value"),
    (CHAT, "model", "other", "model_not_found"),
]


@pytest.mark.parametrize(
    ("path", "name", "value", "code"), WRONG, ids=[f"{n}-{row[1]}" for n, row in enumerate(WRONG)]
)
def test_a_wrong_field_is_named(client: TestClient, path: str, name: str, value: object, code: str):
    body = json.dumps({**GOOD[path], name: value})
    response = client.post(path, content=body, headers=JSON)
    error = response.json()["error"]
    assert response.status_code == (404 if code == "model_not_found" else 400)
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    if code not in ("GG0705", "context_length_exceeded"):
        path_of = {"max_completion_tokens": "max_tokens"}.get(name, name)
        assert error["param"].startswith(path_of)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[0].content"),
        ({"role": "function", "content": "x"}, "messages[0].role"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "assistant"}, "messages[0].content"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"role": "assistant", "content": "a", "audio": {"id": "x"}}, "messages[0].audio"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": "x", "tool_calls": []}, "messages[0].tool_calls"),
    ],
    ids=[
        "missing",
        "role",
        "result",
        "answer",
        "call",
        "audio",
        "null",
        "image",
        "part",
        "unknown",
    ],
)
def test_the_place_in_a_conversation_is_named(
    client: TestClient, message: dict[str, object], param: str
):
    response = client.post(CHAT, json={**GOOD[CHAT], "messages": [message]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_near_names_are_offered(client: TestClient):
    response = client.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "temprature": 1})
    assert "did you mean temperature?" in response.json()["error"]["message"]


def test_fields_that_request_nothing_change_nothing(client: TestClient):
    plain = answer(client, prompt=PROMPT, max_tokens=4)["choices"]
    more: dict[str, Any] = dict.fromkeys(LABELS, "label")
    more |= {name: values[0] for name, values in UNBUILT.items() if values}
    nulls = {row.name: None for row in COMPLETION_FIELDS if not row.required}
    assert answer(client, prompt=PROMPT, max_tokens=4, best_of=1, **more)["choices"] == plain
    body = {**nulls, "max_tokens": 4, "temperature": 0}
    assert answer(client, prompt=PROMPT, **body)["choices"] == plain


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{", JSON, 400, "invalid_json"),
        (b"\xff{}", JSON, 400, "invalid_json"),
        (b'{"model": NaN}', JSON, 400, "invalid_json"),
        (b"[" * 100_000, JSON, 400, "invalid_json"),
        (b'{"a": 1' + b"0" * 5000 + b"}", JSON, 400, "invalid_json"),
        (b"[]", JSON, 400, "invalid_type"),
        (b"{}", JSON, 400, "missing_required_parameter"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        (b" " * 5000, JSON, 413, "body_too_large"),
    ],
    ids=["cut", "utf8", "nan", "deep", "digits", "list", "empty", "type", "long"],
)
def test_what_is_no_body_is_refused(
    content: bytes, headers: dict[str, str], status: int, code: str
):
    most = 4096 if code == "body_too_large" else 1 << 20
    with TestClient(make_application(service_of(max_body=most)), base_url=URL) as client:
        for path in GOOD:
            response = client.post(path, content=content, headers=headers)
            assert response.status_code == status
            assert response.json()["error"]["code"] == code


def test_other_paths_and_methods_have_errors_of_the_same_form(client: TestClient):
    for response, status in ((client.get("/v1/nothing"), 404), (client.get(COMPLETIONS), 405)):
        assert response.status_code == status
        assert response.json()["error"]["type"] == "invalid_request_error"


def test_keys_guard_the_api_and_nothing_else():
    with TestClient(make_application(service_of(api_keys=("one", "two"))), base_url=URL) as client:
        for header in ({}, {"authorization": "Bearer three"}, {"authorization": "Basic one"}):
            response = client.post(COMPLETIONS, json=GOOD[COMPLETIONS], headers=header)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
        for key in ("one", "two"):
            header = {"authorization": f"Bearer {key}"}
            response = client.post(COMPLETIONS, json=GOOD[COMPLETIONS], headers=header)
            assert response.status_code == 200
        for path in ("/health", "/ready", "/metrics", "/", "/openapi.json"):
            assert client.get(path).status_code in (200, 503)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_a_larger_tokenizer_makes_is_refused_by_the_engine(stream: bool):
    service = service_of()
    # The vocabulary of a tokenizer may be larger than that of the model.
    service.model = replace(service.model, vocabulary=1000)
    with TestClient(make_application(service), base_url=URL) as client:
        body = {**GOOD[COMPLETIONS], "stream": stream, "prompt": [1, 330]}
        response = client.post(COMPLETIONS, json=body)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "GG0706")
        assert "the token 330" in response.json()["error"]["message"]
        body["prompt"] = [1, 329]
        assert client.post(COMPLETIONS, json=body).status_code == 200


def test_a_prompt_may_be_limited():
    with TestClient(make_application(service_of(max_prompt=3)), base_url=URL) as client:
        body = {**GOOD[COMPLETIONS], "prompt": [1, 2, 3]}
        assert client.post(COMPLETIONS, json=body).status_code == 200
        body["prompt"] = [1, 2, 3, 4]
        response = client.post(COMPLETIONS, json=body)
        assert response.json()["error"]["code"] == "context_length_exceeded"


def test_the_log_has_no_prompt_unless_it_is_wanted(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "graphgen.server")
    for wanted in (False, True):
        caplog.clear()
        with TestClient(make_application(service_of(log_prompts=wanted)), base_url=URL) as client:
            client.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "prompt": "panic"})
        (facts,) = [vars(record)["facts"] for record in caplog.records if hasattr(record, "facts")]
        assert ("panic" in json.dumps(facts)) is wanted
        assert (facts["status"], facts["prompt_tokens"], facts["new_tokens"]) == (
            200,
            len(small_engine().tokenizer.encode("panic")),
            1,
        )


def test_metrics_count_what_happened():
    with TestClient(make_application(service_of()), base_url=URL) as client:
        made = client.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "max_tokens": 5, "n": 2}).json()
        client.post(COMPLETIONS, json={})
        lines = client.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    path = f'graphgen_requests_total{{endpoint="{COMPLETIONS}",status="%s"}}'
    assert (values[path % 200], values[path % 400]) == ("1.0", "1.0")
    usage = made["usage"]
    assert float(values["graphgen_new_tokens_total"]) == usage["completion_tokens"]
    assert float(values["graphgen_prompt_tokens_total"]) == usage["prompt_tokens"]
    assert values["graphgen_time_to_first_token_seconds_count"] == "2.0"
    between = float(values["graphgen_inter_token_seconds_count"])
    assert between == usage["completion_tokens"] - 2
    # Two answers to one prompt: the second gets all but the last of its tokens from the first.
    prompt = usage["prompt_tokens"]
    assert float(values["graphgen_prefix_cache_queries_total"]) == 2 * prompt
    assert float(values["graphgen_prefix_cache_hits_total"]) == prompt - 1
    assert values["graphgen_rows_taken"] == values["graphgen_requests_waiting"] == "0.0"


def test_nothing_is_reused_where_prefixes_are_not_shared():
    with TestClient(make_application(service_of(prefix_sharing=False)), base_url=URL) as client:
        alike = {**GOOD[COMPLETIONS], "max_tokens": 5, "n": 2, "temperature": 0}
        made = client.post(COMPLETIONS, json=alike).json()
        lines = client.get("/metrics").text.splitlines()
    one, other = (choice["text"] for choice in made["choices"])
    assert one == other
    assert "graphgen_prefix_cache_hits_total 0.0" in lines


names = st.sampled_from([row.name for row in (*COMPLETION_FIELDS, *CHAT_FIELDS)] + ["x", "tools"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["user", "json_object", "a" * 300, NAME])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(names | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def malformed(draw: st.DrawFn) -> tuple[str, bytes]:
    """A path, and a good body with something wrong in it: a field, or a byte."""
    path = draw(st.sampled_from(sorted(GOOD)))
    body = dict(GOOD[path])
    kind = draw(st.sampled_from(["field", "missing", "unknown", "cut", "value"]))
    if kind == "missing":
        del body["prompt" if path == COMPLETIONS else "messages"]
    elif kind == "unknown":
        body["x" + draw(st.text(max_size=9))] = draw(values)
    elif kind == "value":
        return path, json.dumps(draw(values)).encode()
    else:
        for _ in range(draw(st.integers(1, 3))):
            body[draw(names)] = draw(values)
    data = json.dumps(body).encode()
    return path, data[: draw(st.integers(0, len(data) - 1))] if kind == "cut" else data


def refused_or_answered(client: TestClient, path: str, data: bytes) -> int:
    response = client.post(path, content=data, headers=JSON)
    assert response.status_code < 500, (data, response.text)
    if response.status_code >= 400:
        assert response.json()["error"]["message"]
    return response.status_code


@pytest.mark.parametrize(
    "count", [200, pytest.param(2000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_bodies_of_any_kind_are_refused_and_the_server_still_answers(
    client: TestClient, count: int
):
    seen: list[int] = []

    @settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        database=None,
    )
    @given(case=malformed())
    def check(case: tuple[str, bytes]) -> None:
        seen.append(refused_or_answered(client, *case))

    check()
    # Some changes, such as a seed, leave a body that is good.
    assert sum(status >= 400 for status in seen) > count // 2
    assert answer(client, prompt=PROMPT, max_tokens=2)


class CountingBackend:
    """A tokenizer's backend that notes the texts that it tokenizes."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.texts: list[str] = []

    def encode(self, text: str, **options: Any) -> Any:
        self.texts.append(text)
        return self.backend.encode(text, **options)

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.texts += texts
        return self.backend.encode_batch_fast(texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are tokenized from here on."""
    tokenizer = small_engine().tokenizer
    counting = CountingBackend(tokenizer.parts.backend)
    monkeypatch.setattr(tokenizer, "_backend", counting)
    return counting.texts


def above(tokens: int) -> str:
    """A text of more tokens than these, by its characters."""
    bound = small_engine().tokenizer.bound
    assert bound is not None
    return "a" * (bound.longest * tokens + 1)


LONG = above(LENGTH - 1)
HALVES = [{"role": "user", "content": LONG[: len(LONG) // 2 + 1]}] * 2


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (COMPLETIONS, {"prompt": LONG}),
        (COMPLETIONS, {"prompt": LONG, "echo": True}),
        (COMPLETIONS, {"prompt": [LONG, "a"]}),
        (COMPLETIONS, {"prompt": LONG * 300, "stream": True}),
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}),
        (CHAT, {"messages": HALVES}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}]}),
    ],
)
def test_a_prompt_of_too_many_characters_is_not_tokenized(
    client: TestClient, tokenized: list[str], path: str, change: dict[str, Any]
):
    response = client.post(path, json={**GOOD[path], **change})
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["type"], error["param"]) == ("invalid_request_error", None)
    assert error["code"] == "context_length_exceeded"
    assert f"tokens, and {LENGTH - 1} fit" in error["message"]
    assert tokenized == []


def test_choices_are_counted_before_prompts_are_tokenized(client: TestClient, tokenized: list[str]):
    body = {**GOOD[COMPLETIONS], "prompt": ["a"] * 65, "n": 2}
    error = client.post(COMPLETIONS, json=body).json()["error"]
    assert error["message"] == "65 prompts with 2 answers are more than 128 choices"
    assert (error["param"], tokenized) == ("n", [])


def test_the_servers_own_limit_bounds_characters_too(tokenized: list[str]):
    with TestClient(make_application(service_of(max_prompt=4)), base_url=URL) as client:
        body = {**GOOD[COMPLETIONS], "prompt": above(4)}
        error = client.post(COMPLETIONS, json=body).json()["error"]
        assert (error["code"], tokenized) == ("context_length_exceeded", [])
        assert answer(client, prompt="a", max_tokens=1)["usage"]["prompt_tokens"] == len(
            small_engine().tokenizer.encode("a")
        )
        assert tokenized == ["a", "a"]


def test_a_grammar_that_gives_up_is_a_fault_of_the_request(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
):
    def mask(tokens: Sequence[int]) -> None:
        if len(tokens) == 2:
            raise MaskError("GG0705", "too many states")

    monkeypatch.setattr(AnswerGrammars, "masks", lambda *_: [mask])
    form = {"type": "json_object"}
    # Drawn tokens may end the answer before.
    body = {**GOOD[CHAT], "max_tokens": 8, "temperature": 0, "response_format": form}
    response = client.post(CHAT, json=body)
    assert response.status_code == 400
    wanted = {
        "message": "too many states",
        "type": "invalid_request_error",
        "param": "response_format",
        "code": "invalid_json_schema",
    }
    assert response.json()["error"] == wanted
    last = client.post(CHAT, json={**body, "stream": True}).text.strip().splitlines()[-1]
    assert json.loads(last.removeprefix("data: "))["error"] == wanted


def test_a_token_that_a_grammar_does_not_take_is_named_by_its_mask():
    engine = small_engine()
    grammars = AnswerGrammars(engine.tokenizer, 330)
    (mask,) = grammars.masks({"type": "json_object"}, 1)
    allowed = mask(())
    assert allowed is not None
    with pytest.raises(MaskError, match="The grammar of the answer fails: "):
        mask([int(np.flatnonzero(~allowed)[0])])


def test_a_schema_of_too_many_characters_is_refused(client: TestClient):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": "a" * 65536}}}
    error = client.post(CHAT, json={**GOOD[CHAT], "response_format": form}).json()["error"]
    assert error["message"] == "Invalid schema: it has 65549 characters, and 65536 are the most"
    assert error["code"] == "invalid_json_schema"


def test_a_string_of_a_schema_is_bounded(client: TestClient):
    """Each step takes a time that grows with the longest one, and other rows wait for it."""
    for schema in ({"const": "a" * 8193}, {"properties": {"a": {"pattern": "\\d" * 4097}}}):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        error = client.post(CHAT, json={**GOOD[CHAT], "response_format": form}).json()["error"]
        assert "characters, and 8192 are the most" in error["message"]
        assert error["code"] == "invalid_json_schema"


def test_what_a_grammar_may_cost_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """llguidance is given every limit that it has for the time of a grammar and of a step."""
    import llguidance

    given: list[Any] = []

    class Matcher:
        grammar_from_json_schema = llguidance.LLMatcher.grammar_from_json_schema

        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            given.append(options["limits"])
            return matcher(*arguments, **options)

    matcher = llguidance.LLMatcher
    monkeypatch.setattr(llguidance, "LLMatcher", Matcher)
    AnswerGrammars(small_engine().tokenizer, 330).masks({"type": "json_object"}, 1)
    (limits,) = given
    assert 0 < limits.step_lexer_fuel <= 200_000
    assert 0 < limits.initial_lexer_fuel <= 1_000_000
    assert 0 < limits.step_max_items <= 50_000


@pytest.mark.parametrize(
    ("path", "body"),
    [*GOOD.items(), ("/v1/responses", {"input": "a", "max_output_tokens": 1})],
)
def test_a_body_without_a_model_is_for_the_served_one(
    client: TestClient, path: str, body: dict[str, Any]
):
    given = {name: value for name, value in body.items() if name != "model"}
    response = client.post(path, json=given)
    assert response.status_code == 200, response.text
    assert response.json()["model"] == NAME


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/score"])
def test_endpoints_for_other_models_say_why_they_are_not_there(client: TestClient, path: str):
    response = client.post(path, json={"model": NAME, "input": "a"})
    assert response.status_code == 404
    assert "no family of these is built" in response.json()["error"]["message"]
