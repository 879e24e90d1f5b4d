"""``/v1/responses`` without stored state: text, calls, reasoning, events, and the openai client."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import response_create_params
from starlette.testclient import TestClient

from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.request_fields import LABELS
from graphgen.runtime.server.response_request import (
    RESPONSE_FIELDS,
    RESPONSE_UNBUILT,
    read_response,
)
from tests.runtime.server.served import NAME, URL, Live, live, service_of, small_engine
from tests.runtime.server.test_tools import (
    PARAMETERS,
    SHORT,
    TWO,
    answering,
    engine_with,
    fields_of,
)

PATH = "/v1/responses"
TOOLS = [
    {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": True},
    {"type": "function", "name": "now"},
]
BODY: dict[str, Any] = {"model": NAME, "input": "count to 3", "temperature": 0}


@pytest.fixture(scope="module")
def client() -> Generator[TestClient]:
    service = service_of(engine_with(SHORT))
    with TestClient(make_application(service), base_url=URL) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Generator[Live]:
    with live(engine=engine_with(SHORT)) as made:
        yield made


def asked(client: TestClient, **changes: Any) -> dict[str, Any]:
    response = client.post(PATH, json={**BODY, **changes})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_text(client: TestClient):
    with answering("It is 3."):
        made = asked(client)
    (item,) = made["output"]
    assert (made["status"], made["store"], made["object"]) == ("completed", False, "response")
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"][0]["text"] == "It is 3."
    assert made["usage"]["total_tokens"] == (
        made["usage"]["input_tokens"] + made["usage"]["output_tokens"]
    )
    cut = asked(client, max_output_tokens=2)
    assert cut["status"] == "incomplete"
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}
    assert cut["usage"]["output_tokens"] == 2


def test_reasoning_text_and_calls_are_items(client: TestClient):
    with answering("<think>hm</think>" + TWO):
        output = asked(client, tools=TOOLS)["output"]
    assert [item["type"] for item in output] == [
        *("reasoning", "message", "function_call", "function_call"),
    ]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert output[1]["content"][0]["text"] == "So:"
    assert [(item["name"], item["arguments"]) for item in output[2:]] == [
        ("look", '{"ok": true}'),
        ("now", "{}"),
    ]
    named = {"type": "function", "name": "look"}
    for choice in ("required", named):
        (item,) = asked(client, tools=TOOLS[:1], tool_choice=choice, parallel_tool_calls=False)[
            "output"
        ]
        assert set(json.loads(item["arguments"])) == {"ok", "kind"}
    form = {"type": "json_schema", "name": "x", "schema": PARAMETERS}
    (item,) = asked(client, text={"format": form}, max_output_tokens=60)["output"]
    assert item["content"][0]["text"].lstrip().startswith("{")


def test_what_an_answer_gave_is_taken_back():
    model = service_of(engine_with(SHORT)).model
    history: list[Mapping[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "status": "completed",
        },
        {
            "type": "message",
            "role": "assistant",
            "id": "m",
            "status": "completed",
            "content": [{"type": "output_text", "text": "So:", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"ok": true}'},
        {"type": "function_call", "call_id": "d", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "12"},
        {"type": "message", "role": "assistant", "content": "ok"},
    ]
    made = read_response({**BODY, "input": history, "instructions": "be"}, model)
    text = small_engine().tokenizer.decode(made.requests[0].prompt, skip_special=False)
    assert text == (
        '|s:be|u:hi|a:So:<think>hm</think><tool_call>look{"ok": true}<tool_call>now{}|t:12|a:ok|a:'
    )


WRONG: list[tuple[Mapping[str, Any], str, str]] = [
    ({"store": True}, "store", "unsupported_parameter"),
    ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_parameter"),
    ({"background": True}, "background", "unsupported_parameter"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "invalid_value"),
    (
        {"tool_choice": {"type": "function", "name": "a b"}},
        *("tool_choice.name", "invalid_value"),
    ),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "invalid_value"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        *("input[0].content[0].type", "invalid_value"),
    ),
    ({"text": {"verbosity": "low"}}, "text.verbosity", "unknown_parameter"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", ""),
    ({"reasoning": {"effort": "high"}}, "reasoning.effort", "unsupported_parameter"),
    ({"max_output_tokens": 10**6}, "max_output_tokens", "context_length_exceeded"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"inputs": "a"}, "inputs", "unknown_parameter"),
    ({"model": "other"}, "model", "model_not_found"),
]


@pytest.mark.parametrize(("changes", "param", "code"), WRONG, ids=[row[1] for row in WRONG])
def test_a_wrong_field_is_named(
    client: TestClient, changes: Mapping[str, Any], param: str, code: str
):
    response = client.post(PATH, json={**BODY, **changes})
    assert response.status_code in (400, 404)
    error = response.json()["error"]
    assert error["param"] == param
    assert not code or error["code"] == code


def test_every_field_of_openai_is_in_the_table(client: TestClient):
    theirs = fields_of(response_create_params.ResponseCreateParamsStreaming)
    known = {*(row.name for row in RESPONSE_FIELDS), *LABELS, *RESPONSE_UNBUILT}
    assert len(theirs) > 25
    assert theirs - known == set()
    nothing = {name: values[0] for name, values in RESPONSE_UNBUILT.items() if values}
    with answering("a"):
        assert asked(client, **nothing, **dict.fromkeys(LABELS))["status"] == "completed"
    for name in RESPONSE_UNBUILT:
        error = client.post(PATH, json={**BODY, name: {"asks": 1}}).json()["error"]
        assert (error["param"], error["code"]) == (name, "unsupported_parameter")


def test_the_openai_client_reads_answers_and_events(server: Live):
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as openai:
        create: Any = openai.responses.create
        common = {"model": NAME, "temperature": 0, "tools": TOOLS, "input": "count", "store": False}
        with answering("<think>hm</think>" + TWO):
            whole = create(**common)
            events = list(create(**common, stream=True))
        assert whole.output_text == "So:"
        assert [event.sequence_number for event in events] == list(range(len(events)))
        kinds = [event.type for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-1] == "response.completed"
        for kind in ("output_item", "content_part"):
            added, done = (kinds.count(f"response.{kind}.{end}") for end in ("added", "done"))
            assert added == done > 0
        last = events[-1].response
        assert [item.type for item in last.output] == [item.type for item in whole.output]
        assert last.usage == whole.usage

        def of(kind: str) -> str:
            return "".join(e.delta for e in events if e.type == f"response.{kind}.delta")

        assert (of("output_text"), of("reasoning_text")) == ("So:", "hm")
        assert of("function_call_arguments") == '{"ok": true}{}'
        calls = [item for item in whole.output if item.type == "function_call"]
        history: list[Any] = [{"role": "user", "content": "count"}]
        history += [item.model_dump() for item in whole.output]
        history += [
            {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
            for call in calls
        ]
        with answering("It is 3."):
            assert create(**{**common, "input": history}).output_text == "It is 3."
        with answering("Yes"), openai.responses.stream(model=NAME, input="a") as stream:
            assert stream.get_final_response().output_text == "Yes"
