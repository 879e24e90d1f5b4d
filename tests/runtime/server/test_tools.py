"""Tools, calls and reasoning: requests, templates, answers whole and streamed, and histories."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jsonschema_rs
import openai.types.chat as chat_types
import pytest
from openai import OpenAI
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from starlette.testclient import TestClient

from graphgen.errors import GraphgenError
from graphgen.runtime.engine import Engine
from graphgen.runtime.language_model import Answer, LanguageModel
from graphgen.runtime.progress import Silent
from graphgen.runtime.server.answer_request import AnswerRequest, read_chat
from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.request_fields import CHAT_FIELDS, COMPLETION_FIELDS, LABELS, UNBUILT
from graphgen.runtime.serving import serving_engine
from graphgen.runtime.tokenizer.tokenizer import Tokenizer
from graphgen.runtime.tool_calls.answer_reader import AnswerParts
from tests.oracles.tool_templates import TAGGED
from tests.runtime.server.served import NAME, URL, Live, live, service_of, small_engine
from tests.runtime.server.test_answers import events

CHAT = "/v1/chat/completions"
# The small model has room for 128 tokens: a template of few.
SHORT = (
    "{% if tools %}T:{% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}"
    "{% for m in messages %}|{{ m.role[0] }}:{{ m.content }}{% if m.reasoning_content %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{% for c in m.tool_calls %}<tool_call>"
    "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}|a:"
    "{% if think %}<think>\n{% endif %}"
)
PARAMETERS = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["llama", "naïve"]}},
    "required": ["ok", "kind"],
    "additionalProperties": False,
}


def tool(name: str, parameters: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    function = {"name": name, **({"parameters": parameters} if parameters else {}), **more}
    return {"type": "function", "function": function}


TOOLS = [tool("look", PARAMETERS, description="Look at it."), tool("now")]
MESSAGES = [{"role": "user", "content": "count to 3"}]
BODY: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "tools": TOOLS, "temperature": 0}


def engine_with(template: str) -> Engine:
    """The small model with another chat template."""
    first = small_engine()
    tokenizer = Tokenizer(replace(first.tokenizer.parts, chat_template=template))
    return Engine(first.model, tokenizer, first.programs, first.session.weights, 0.0, False)


@pytest.fixture(scope="module")
def tooled() -> Generator[TestClient]:
    service = service_of(engine_with(SHORT))
    with TestClient(make_application(service), base_url=URL) as client:
        yield client


@contextmanager
def answering(text: str) -> Iterator[None]:
    """Let every answer be this text."""
    tokenizer = small_engine().tokenizer
    (end, *_) = tokenizer.eos_ids
    tokens = [*tokenizer.encode(text, add_special=False), end]

    def chosen(logits: Any, before: Any, how: Any, sequence: int, step: int, **_: Any) -> int:
        return tokens[step]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving_engine, "next_token", chosen)
        yield


def asked(client: TestClient, **changes: Any) -> dict[str, Any]:
    response = client.post(CHAT, json={**BODY, **changes})
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return choice


def joined(client: TestClient, **changes: Any) -> dict[str, Any]:
    """A streamed choice as a whole one."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    reason = None
    for event in events(client, CHAT, **{**BODY, **changes}):
        for choice in event["choices"]:
            delta, reason = choice["delta"], choice["finish_reason"] or reason
            for name in ("content", "reasoning_content"):
                message[name] += delta.get(name) or ""
            for part in delta.get("tool_calls", ()):
                if "id" in part:
                    assert part["index"] == len(message["tool_calls"])
                    message["tool_calls"].append(part)
                else:
                    call = message["tool_calls"][part["index"]]
                    call["function"]["arguments"] += part["function"]["arguments"]
    return {"message": message, "finish_reason": reason}


def calls_of(choice: Mapping[str, Any]) -> list[tuple[str, str]]:
    calls = choice["message"].get("tool_calls", ())
    assert all(call["type"] == "function" and call["id"].startswith("call_") for call in calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


TWO = 'So:\n<tool_call>{"name": "look", "arguments": {"ok": true}}</tool_call>'
TWO += '<tool_call>{"name": "now"}'


def test_calls_are_read_whole_and_streamed(tooled: TestClient):
    wanted = [("look", '{"ok": true}'), ("now", "{}")]
    with answering(TWO):
        whole, stream = asked(tooled), joined(tooled)
        assert calls_of(whole) == calls_of(stream) == wanted
        assert whole["finish_reason"] == stream["finish_reason"] == "tool_calls"
        assert whole["message"]["content"] == stream["message"]["content"] == "So:"
        assert calls_of(asked(tooled, parallel_tool_calls=False)) == wanted[:1]
    with answering(TWO[4:]):
        assert asked(tooled)["message"]["content"] is None
    with answering(TWO):
        without = asked(tooled, tool_choice="none")
        assert (without["message"]["content"], without["finish_reason"]) == (TWO, "stop")
        assert asked(tooled, tools=[])["message"] == without["message"]


def test_arguments_are_streamed_in_parts(tooled: TestClient):
    with answering(TWO):
        parts = [
            part["function"]["arguments"]
            for event in events(tooled, CHAT, **BODY)
            for choice in event["choices"]
            for part in choice["delta"].get("tool_calls", ())
        ]
    assert len([part for part in parts if part]) > 4


def test_reasoning_is_apart(tooled: TestClient):
    for text, think in (("<think>\nhm\n</think>\n\nYes", False), ("hm\n</think>\n\nYes", True)):
        more = {"chat_template_kwargs": {"think": think}}
        for tools in (TOOLS, []):
            with answering(text):
                whole, stream = (
                    asked(tooled, tools=tools, **more),
                    joined(tooled, tools=tools, **more),
                )
            for choice in (whole, stream):
                message = choice["message"]
                assert (message["content"], message["reasoning_content"]) == ("Yes", "hm")


def test_a_forced_call_matches_its_schema(tooled: TestClient):
    named = {"type": "function", "function": {"name": "look"}}
    for choice, reason in (("required", "tool_calls"), (named, "stop")):
        body = {"tool_choice": choice, "parallel_tool_calls": False, "tools": TOOLS[:1]}
        whole, stream = asked(tooled, **body), joined(tooled, **body)
        assert calls_of(whole) == calls_of(stream)
        ((name, text),) = calls_of(whole)
        assert name == "look"
        assert jsonschema_rs.is_valid(PARAMETERS, json.loads(text))
        assert whole["finish_reason"] == stream["finish_reason"] == reason
        assert whole["message"]["content"] is None


def test_a_forced_call_works_without_tools_in_the_template(client: TestClient):
    body = {**BODY, "tool_choice": "required", "parallel_tool_calls": False}
    choice = client.post(CHAT, json=body).json()["choices"][0]
    assert len(calls_of(choice)) == 1


# A template without tools, and one that refuses a system message, as Gemma's.
PLAIN = "{% for m in messages %}|{{ m.role }}:{{ m.content }}{% endfor %}|a:"
REFUSING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
)
CALLED = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"ok": true}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "llama"},
    {"role": "tool", "tool_call_id": "call_1", "content": "naïve"},
]
SHOWN = (
    'Look.|assistant:<tool_call>\n{"name": "look", "arguments": {"ok": true}}\n</tool_call>'
    "|user:<tool_response>\nllama\n</tool_response>\n<tool_response>\nnaïve\n</tool_response>|a:"
)


def prompt_of(template: str, **body: Any) -> str:
    """The prompt of a request to a model with room for more than the small one has."""
    model = replace(service_of(engine_with(template)).model, limit=4096)
    made = read_chat({**BODY, "max_tokens": 4, **body}, model)
    return model.tokenizer.decode(made.requests[0].prompt)


@pytest.mark.parametrize(("template", "role"), [(PLAIN, "system"), (REFUSING, "user")])
def test_a_template_without_tools_gets_them_as_text(template: str, role: str):
    shown = prompt_of(template, messages=CALLED)
    head, _, rest = shown.partition("Look.")
    assert head.lstrip().startswith(f"|{role}:You can call these functions")
    for given in TOOLS:
        assert json.dumps(given, ensure_ascii=False) in head
    assert f"Look.{rest}" == SHOWN


def test_a_system_message_keeps_its_text_after_the_tools():
    messages = [{"role": "system", "content": "Be short."}, *MESSAGES]
    shown = prompt_of(PLAIN, messages=messages)
    assert shown.count("|system:") == 1
    assert "plain text.\n\nBe short.|user:count to 3|a:" in shown


def test_calls_of_a_template_without_tools_are_read():
    model = replace(service_of(engine_with(PLAIN)).model, limit=4096)
    made = read_chat({**BODY, "max_tokens": 4}, model)
    assert made.reader is not None
    reader = made.reader()
    pieces = [*reader.push(TWO), *reader.end()]
    found = AnswerParts()
    found.take(pieces)
    assert found.content == "So:"
    assert [call.name for call in found.calls] == ["look", "now"]


def test_schemas_that_tools_refer_to_are_kept():
    shared = {"$defs": {"k": {"enum": ["a", "b"]}}, "type": "object"}
    first = {**shared, "properties": {"x": {"$ref": "#/$defs/k"}}, "required": ["x"]}
    first["additionalProperties"] = False
    service = service_of(engine_with(SHORT))
    body = {**BODY, "tools": [tool("f", first)], "tool_choice": "required"}
    body["parallel_tool_calls"] = False
    with TestClient(make_application(service), base_url=URL) as client:
        ((_, text),) = calls_of(client.post(CHAT, json=body).json()["choices"][0])
        assert json.loads(text)["x"] in ("a", "b")
        other = {**first, "$defs": {"k": {"enum": ["c"]}}}
        body["tools"] = [tool("f", first), tool("g", other)]
        error = client.post(CHAT, json=body).json()["error"]
        assert error["param"] == "tools"
        assert "another schema 'k'" in error["message"]
        body["tools"] = [tool("f", {"type": "nothing"})]
        error = client.post(CHAT, json=body).json()["error"]
        assert (error["param"], error["code"]) == ("tools", "invalid_json_schema")


def request(body: Mapping[str, Any], template: str = SHORT) -> AnswerRequest:
    service = service_of(engine_with(template))
    return read_chat({**BODY, **body}, service.model)


def prompt(body: Mapping[str, Any], template: str = SHORT) -> str:
    (one,) = request(body, template).requests
    return small_engine().tokenizer.decode(one.prompt, skip_special=False)


CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"ok": true}'}}


def test_a_history_reaches_the_template():
    assert prompt({}) == "T:look now |u:count to 3|a:"
    assert prompt({"tool_choice": "none"}) == "|u:count to 3|a:"
    history = [
        {"role": "developer", "content": "be"},
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "12"}]},
    ]
    wanted = '|s:be|u:count to 3|a:<think>hm</think><tool_call>look{"ok": true}|t:12|a:'
    assert prompt({"messages": history, "tools": []}) == wanted
    history[2] = {**history[2], "reasoning": history[2]["reasoning_content"]}
    history[2] |= {"audio": None, "function_call": None, "annotations": [], "refusal": None}
    assert prompt({"messages": history, "tools": []}) == wanted
    history[2]["tool_calls"] = [{**CALL, "function": {"name": "look", "arguments": '{"ok": '}}]
    assert 'look"{\\"ok\\": "' in prompt({"messages": history, "tools": []})


def test_an_answer_without_a_text_is_read_by_templates_that_need_one():
    template = "{% for m in messages %}{{ m.role + ':' + m.content }}{% endfor %}"
    history = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    assert prompt({"messages": history, "tools": []}, template) == "user:count to 3assistant:"


def test_reasoning_effort_is_for_templates_that_read_it():
    template = SHORT + "{{ reasoning_effort }}"
    assert prompt({"reasoning_effort": "high"}, template).endswith("|a:high")


def test_the_template_of_a_family_keeps_its_marks_in_the_text():
    (one,) = request({}).requests
    assert {"<tool_call>", "</tool_call>", "<think>"} <= set(one.kept_special)
    (one,) = request({"tool_choice": "required"}).requests
    assert one.kept_special == ()


WRONG: list[tuple[Mapping[str, Any], str, str]] = [
    ({"tools": [], "tool_choice": "required"}, "tool_choice", "only for requests with tools"),
    ({"tools": TOOLS[:1] * 2}, "tools", "two tools have the name 'look'"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        *("tool_choice", "names 'f'"),
    ),
    ({"response_format": {"type": "json_object"}}, "response_format", "excludes tools"),
    ({"tool_choice": "required", "ignore_eos": True}, "ignore_eos", "contradicts"),
]


@pytest.mark.parametrize(("changes", "param", "words"), WRONG, ids=[row[1] for row in WRONG])
def test_contradictions_are_named(
    tooled: TestClient, changes: Mapping[str, Any], param: str, words: str
):
    response = tooled.post(CHAT, json={**BODY, **changes})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert words in response.json()["error"]["message"]


def test_tools_of_an_unknown_form_are_refused():
    service = service_of(engine_with("{{ tools }}{{ messages[0].content }}"))
    with TestClient(make_application(service), base_url=URL) as client:
        error = client.post(CHAT, json=BODY).json()["error"]
        assert (error["param"], error["code"]) == ("tools", "unsupported_parameter")
        assert "form" in error["message"]


# ---- every field of OpenAI's API -----------------------------------------------------------------


def fields_of(kind: Any) -> set[str]:
    return {name for base in kind.__mro__ for name in getattr(base, "__annotations__", ())}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (chat_create_params.CompletionCreateParamsStreaming, CHAT_FIELDS),
        (completion_create_params.CompletionCreateParamsStreaming, COMPLETION_FIELDS),
    ],
    ids=["chat", "completion"],
)
def test_every_field_of_openai_is_in_the_table(theirs: Any, ours: Any):
    known = {*(row.name for row in ours), *LABELS, *UNBUILT}
    assert len(fields_of(theirs)) > 15
    assert fields_of(theirs) - known == set()
    assert {row.name for row in ours}.isdisjoint({*LABELS, *UNBUILT})


@pytest.mark.parametrize("name", UNBUILT)
def test_a_field_that_is_not_built_is_refused_by_name(client: TestClient, name: str):
    for path, body in ((CHAT, {"messages": MESSAGES}), ("/v1/completions", {"prompt": "a"})):
        asked = {"model": NAME, "max_tokens": 1, **body, name: {"asks": "for it"}}
        response = client.post(path, json=asked)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == name
        for value in (None, *UNBUILT[name]):
            assert client.post(path, json={**asked, name: value}).status_code == 200


ROLES = {
    "developer": chat_types.ChatCompletionDeveloperMessageParam,
    "system": chat_types.ChatCompletionSystemMessageParam,
    "user": chat_types.ChatCompletionUserMessageParam,
    "assistant": chat_types.ChatCompletionAssistantMessageParam,
    "tool": chat_types.ChatCompletionToolMessageParam,
}


@pytest.mark.parametrize("role", ROLES)
def test_every_field_of_a_message_is_read_or_refused_by_name(client: TestClient, role: str):
    base: dict[str, Any] = {"role": role, "content": "a"}
    base |= {"tool_call_id": "x"} if role == "tool" else {}
    for name in fields_of(ROLES[role]) - {"role", "content", "tool_call_id"}:
        body = {"model": NAME, "max_tokens": 1, "messages": [{**base, name: {"a": 1}}]}
        error = client.post(CHAT, json=body).json()["error"]
        assert error["param"].startswith(f"messages[0].{name}")
        assert "Unknown" not in error["message"]
        body["messages"] = [{**base, name: None}]
        assert client.post(CHAT, json=body).status_code == 200


# ---- clients -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tool_server() -> Generator[Live]:
    with live(engine=engine_with(SHORT)) as made:
        yield made


def test_the_loop_of_openais_client(tool_server: Live):
    with OpenAI(base_url=f"{tool_server.url}/v1", api_key="none", max_retries=0) as client:
        create: Callable[..., Any] = client.chat.completions.create
        opened: Callable[..., Any] = client.chat.completions.stream
        history: list[Any] = [*MESSAGES]
        common = {"model": NAME, "tools": TOOLS[:1], "temperature": 0}
        made = create(messages=history, tool_choice="required", parallel_tool_calls=False, **common)
        message = made.choices[0].message
        (call,) = message.tool_calls
        assert set(json.loads(call.function.arguments)) == {"ok", "kind"}
        history += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "3"}]
        with answering("It is 3."):
            last = create(messages=history, **common).choices[0]
        assert (last.message.content, last.finish_reason) == ("It is 3.", "stop")
        with (
            answering(TWO),
            opened(messages=[*MESSAGES], **common) as stream,
        ):
            done = stream.get_final_completion().choices[0].message
        assert [one.function.name for one in done.tool_calls or ()] == ["look", "now"]


# ---- Python --------------------------------------------------------------------------------------


def test_a_chat_in_python_has_calls_and_reasoning():
    with LanguageModel(engine_with(SHORT), NAME, Silent()) as model:
        with answering("<think>hm</think>" + TWO):
            answer = model.chat(MESSAGES, tools=TOOLS)
            stream = model.chat(MESSAGES, tools=TOOLS, stream=True)
            assert "".join(stream) == answer.text == "So:"
            assert (
                named(stream.answer) == named(answer) == [("look", '{"ok": true}'), ("now", "{}")]
            )
            assert stream.answer.reasoning == answer.reasoning == "hm"
        (call,) = model.chat(
            MESSAGES, tools=TOOLS[:1], tool_choice="required", parallel_tool_calls=False
        ).tool_calls
        assert jsonschema_rs.is_valid(PARAMETERS, json.loads(call.arguments))
        calls = [{"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}]
        history = [
            *MESSAGES,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call.id, "content": "3"},
        ]
        with answering("It is 3."):
            assert model.chat(history, tools=TOOLS).text == "It is 3."
        with pytest.raises(GraphgenError, match="'tool_choice' names 'f'"):
            model.chat(
                MESSAGES,
                tools=TOOLS,
                tool_choice={"type": "function", "function": {"name": "f"}},
            )


def named(answer: Answer) -> Sequence[tuple[str, str]]:
    return [(call.name, call.arguments) for call in answer.tool_calls]


@pytest.mark.slow
def test_smollm2_calls_a_tool_by_grammar():
    import graphgen

    city = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}}
    schema = {**city, "required": ["city"], "additionalProperties": False}
    tools = [tool("weather", schema, description="The weather of a city.")]
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    with graphgen.load("smollm2", batch=1, progress=False) as model:
        answer = model.chat(
            question, tools=tools, tool_choice="required", parallel_tool_calls=False
        )
        (call,) = answer.tool_calls
        assert call.name == "weather"
        assert list(json.loads(call.arguments)) == ["city"]
        calls = [{"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}]
        history = [
            *question,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call.id, "content": "12 degrees, rain"},
        ]
        assert model.chat(history, max_new_tokens=20).text


def test_the_template_of_qwen_is_of_a_known_form():
    made = request({"tools": [], "tool_choice": "none"}, TAGGED)
    assert made.reader is not None
