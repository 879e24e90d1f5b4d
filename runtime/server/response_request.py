"""The bodies of ``/v1/responses`` without stored state, as conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from graphgen.config.fields import ValueType, number, text, value_type, words
from graphgen.json_value import Json
from graphgen.runtime.server.answer_request import (
    AnswerRequest,
    Fields,
    ServedModel,
    chat_request,
    check_model,
)
from graphgen.runtime.server.api_error import ApiError
from graphgen.runtime.server.chat_fields import FUNCTION_NAME, tool_choice
from graphgen.runtime.server.field_kinds import (
    ANY_OBJECT,
    BOOLEAN,
    TEXT,
    FieldError,
    array,
    as_given,
    body_field,
    either,
    integer,
    of_type,
    record,
)
from graphgen.runtime.server.request_fields import (
    CHAT_FIELDS,
    EFFORTS,
    LABELS,
    MOST_TOKENS,
    BodyTable,
)

_NOTHING = value_type(lambda value: None, "null", "null", {"enum": [None, []]})
# Fields of items that clients send back as they got them.
_OF_ITEMS = (
    body_field("id", TEXT, "No effect."),
    body_field("status", TEXT, "No effect."),
    body_field("phase", TEXT, "No effect."),
)


def _part(*kinds: str) -> ValueType[Any]:
    part = record(
        (
            body_field("type", words(*kinds), "Only text.", required=True),
            body_field("text", TEXT, "The text.", required=True),
            body_field("annotations", _NOTHING, "No effect."),
            body_field("logprobs", _NOTHING, "No effect."),
        )
    )
    return of_type(part, *kinds)


def _content(*kinds: str) -> ValueType[Any]:
    parts = array(_part(*kinds), "parts of text", smallest=0, largest=1024)

    def chosen(value: Json) -> ValueType[Any] | None:
        if isinstance(value, str):
            return TEXT
        return parts if isinstance(value, list) else None

    return either("a string or an array of parts", chosen, TEXT, parts)


_MESSAGE = record(
    (
        body_field("type", words("message"), "A message.", "message"),
        body_field(
            "role",
            words("system", "developer", "user", "assistant"),
            "Role of the author.",
            required=True,
        ),
        body_field("content", _content("input_text", "output_text"), "The text.", required=True),
        *_OF_ITEMS,
    )
)
_CALL = record(
    (
        body_field("type", words("function_call"), "A call.", required=True),
        body_field("call_id", text(1), "Of the call; its result names it.", required=True),
        body_field("name", text(1), "Of the function.", required=True),
        body_field("arguments", TEXT, "A JSON text.", required=True),
        *_OF_ITEMS,
    )
)
_RESULT = record(
    (
        body_field("type", words("function_call_output"), "A result.", required=True),
        body_field("call_id", text(1), "The call that it is the result of.", required=True),
        body_field("output", _content("input_text"), "The result.", required=True),
        *_OF_ITEMS,
    )
)
_REASONING = record(
    (
        body_field("type", words("reasoning"), "Reasoning.", required=True),
        body_field("summary", array(ANY_OBJECT, "parts", smallest=0), "No effect."),
        body_field(
            "content",
            array(_part("reasoning_text"), "parts of text", smallest=0, largest=1024),
            "The text.",
        ),
        body_field("encrypted_content", _NOTHING, "Not built."),
        *_OF_ITEMS,
    )
)
_ITEMS = {"function_call": _CALL, "function_call_output": _RESULT, "reasoning": _REASONING}


def _item_kind(value: Json) -> ValueType[Any] | None:
    if not isinstance(value, Mapping):
        return None
    kind = value.get("type")
    return _ITEMS.get(kind, _MESSAGE) if isinstance(kind, str) else _MESSAGE


_ITEM = either("an item", _item_kind, _MESSAGE, *_ITEMS.values())
_INPUT_ITEMS = array(of_type(_ITEM, "message", *_ITEMS), "items", largest=4096)


def _input_kind(value: Json) -> ValueType[Any] | None:
    if isinstance(value, str):
        return TEXT
    return _INPUT_ITEMS if isinstance(value, list) else None


_FORM = record(
    (
        body_field(
            "type",
            words("text", "json_object", "json_schema"),
            "Form of the answer.",
            required=True,
        ),
        body_field("name", TEXT, "Of the schema; a label."),
        body_field("description", TEXT, "Of the schema; a label."),
        body_field("schema", ANY_OBJECT, "JSON Schema that the answer matches."),
        body_field("strict", BOOLEAN, "The answer always matches the schema.", False),
    )
)
_TOOL = record(
    (
        body_field("type", words("function"), "Only functions.", required=True),
        body_field("name", FUNCTION_NAME, "Of the function.", required=True),
        body_field("description", TEXT, "For the model."),
        body_field("parameters", ANY_OBJECT, "JSON Schema of the arguments."),
        body_field("strict", BOOLEAN, "Kept where a call is forced."),
    )
)
_NAMED_CHOICE = record(
    (
        body_field("type", words("function"), "A function.", required=True),
        body_field("name", FUNCTION_NAME, "Its name.", required=True),
    )
)


def _stored(value: object) -> bool:
    if value is not False:
        what = "answers are not stored; give 'store': false, or leave it out"
        raise FieldError("unsupported_parameter", lambda _: what)
    return False


_NOT_STORED = value_type(_stored, "false", "false", {"const": False})
RESPONSE_FIELDS = (
    body_field("model", text(1), "As /v1/models lists it; the served model where it is left out."),
    body_field(
        "input",
        either("a string or an array of items", _input_kind, TEXT, _INPUT_ITEMS),
        "The conversation.",
        required=True,
    ),
    body_field("instructions", TEXT, "A message of the system before the conversation."),
    body_field("max_output_tokens", integer(1, MOST_TOKENS), "Largest number of new tokens."),
    body_field("temperature", number(0, 2), "Scores are divided by it; 0 for the best token.", 1.0),
    body_field("top_p", number(0, 1), "Keep tokens that together have this probability.", 1.0),
    body_field(
        "tools",
        as_given(array(of_type(_TOOL, "function"), "functions", smallest=0, largest=128)),
        "Functions that the answer may call.",
        (),
    ),
    body_field(
        "tool_choice",
        tool_choice(_NAMED_CHOICE),
        "Whether it calls them: auto where there are tools.",
    ),
    body_field("parallel_tool_calls", BOOLEAN, "The answer may have several calls.", True),
    body_field(
        "text", record((body_field("format", _FORM, "Form of the answer."),)), "Form of the answer."
    ),
    body_field(
        "reasoning",
        record((body_field("effort", EFFORTS, "For chat templates that read it."),)),
        "Options of the reasoning.",
    ),
    body_field("store", _NOT_STORED, "Answers are not stored.", False),
    body_field("stream", BOOLEAN, "Send events.", False),
    body_field(
        "stream_options",
        record((body_field("include_obfuscation", BOOLEAN, "Nothing is obfuscated."),)),
        "Only with stream.",
    ),
)


RESPONSE_UNBUILT: Mapping[str, tuple[Json, ...]] = {
    "background": (False,),
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "include": ([],),
    "max_tool_calls": (),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "service_tier": ("auto", "default"),
    "context_management": ([],),
    "background_options": (),
    "access_programs": ([],),
    "moderation": (),
    "image": (),
}
RESPONSE_BODY = BodyTable(*RESPONSE_FIELDS, labels=LABELS, unbuilt=RESPONSE_UNBUILT)


def read_response(body: Json, model: ServedModel) -> AnswerRequest:
    """The meaning of a body of ``/v1/responses``.

    Raises:
        ApiError: status 400, or 404 for another model.
    """
    fields = RESPONSE_BODY.read(body)
    check_model(fields, model)
    chat: dict[str, object] = {row.name: row.default for row in CHAT_FIELDS}
    same = ("model", "temperature", "top_p", "parallel_tool_calls", "stream")
    chat |= {name: fields[name] for name in same}
    chat |= {
        "messages": _messages(fields),
        "tools": [_chat_tool(one) for one in cast("Sequence[Json]", fields["tools"])],
        "tool_choice": _chat_choice(fields["tool_choice"]),
        "response_format": _chat_form(fields),
        "reasoning_effort": cast("Fields", fields["reasoning"] or {}).get("effort"),
    }
    asked = cast("int | None", fields["max_output_tokens"])
    try:
        made = chat_request(chat, model, (asked, model.limit), None)
    except ApiError as error:
        error.param = _PARAMS.get(error.param or "", error.param)
        raise
    return replace(made, response=_stated(fields))


# Names of fields of chats in errors, as they are here.
_PARAMS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
    "reasoning_effort": "reasoning.effort",
}


def _messages(fields: Fields) -> list[Fields]:
    """The messages of a conversation: reasoning, text and calls of one answer are one message."""
    made: list[Fields] = []
    if fields["instructions"]:
        made.append({"role": "system", "content": fields["instructions"]})
    given = fields["input"]
    if isinstance(given, str):
        return [*made, {"role": "user", "content": given}]
    for item in cast("Sequence[Fields]", given):
        kind = item["type"]
        if kind == "function_call_output":
            result = {"content": _text(item["output"]), "tool_call_id": item["call_id"]}
            made.append({"role": "tool", **result})
        elif kind == "message" and item["role"] != "assistant":
            made.append({"role": item["role"], "content": _text(item["content"])})
        else:
            _add_to_answer(made, item)
    return made


def _add_to_answer(made: list[Fields], item: Fields) -> None:
    """Add reasoning, a text or a call to the answer at the end of a conversation."""
    last = made[-1] if made and made[-1]["role"] == "assistant" else None
    # A text or a call ends an answer, but for further calls.
    full = last is not None and (last["content"] is not None or "tool_calls" in last)
    if last is None or (full and item["type"] != "function_call"):
        last = {"role": "assistant", "content": None}
    else:
        made.pop()
    if item["type"] == "reasoning":
        last = {**last, "reasoning_content": _text(item["content"] or ())}
    elif item["type"] == "message":
        last = {**last, "content": _text(item["content"])}
    else:
        function = {"name": item["name"], "arguments": item["arguments"]}
        calls = cast("Sequence[object]", last.get("tool_calls", ()))
        last = {**last, "tool_calls": [*calls, {"id": item["call_id"], "function": function}]}
    made.append(last)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part["text"]) for part in cast("Sequence[Fields]", content))


def _chat_tool(given: Json) -> Json:
    """A tool in the form of chats."""
    assert isinstance(given, Mapping)
    inner = {name: value for name, value in given.items() if name != "type" and value is not None}
    return {"type": "function", "function": inner}


def _chat_choice(given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    named = cast("Fields", given)
    return {"type": "function", "function": {"name": named["name"]}}


def _chat_form(fields: Fields) -> object:
    """The form of the answer as chats have it."""
    form = cast("Fields | None", cast("Fields", fields["text"] or {}).get("format"))
    if form is None or form["type"] == "text":
        return None
    if form["type"] == "json_schema" and form["schema"] is None:
        what = "Missing required parameter: 'text.format.schema'"
        raise ApiError(400, what, param="text.format.schema", code="missing_required_parameter")
    return {"type": form["type"], "json_schema": {"schema": form["schema"]}}


def _stated(fields: Fields) -> dict[str, Json]:
    """The facts of a request that its answer states."""
    form = cast("Fields", fields["text"] or {}).get("format") or {"type": "text"}
    reasoning = cast("Fields", fields["reasoning"] or {})
    given = cast("Mapping[str, Json]", form)
    return {
        "instructions": cast("Json", fields["instructions"]),
        "max_output_tokens": cast("Json", fields["max_output_tokens"]),
        "parallel_tool_calls": cast("Json", fields["parallel_tool_calls"]),
        "previous_response_id": None,
        "reasoning": {"effort": cast("Json", reasoning.get("effort")), "summary": None},
        "store": False,
        "temperature": cast("Json", fields["temperature"]),
        "text": {"format": {name: value for name, value in given.items() if value is not None}},
        "tool_choice": cast("Json", fields["tool_choice"]) or "auto",
        "tools": list(cast("Sequence[Json]", fields["tools"])),
        "top_p": cast("Json", fields["top_p"]),
        "truncation": "disabled",
    }
