"""The fields of chats: messages by role, tools, and the choice of a tool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graphgen.config.fields import MismatchError, TypedField, ValueType, text, value_type, words
from graphgen.json_value import Json
from graphgen.runtime.server.field_kinds import (
    ANY_OBJECT,
    BOOLEAN,
    TEXT,
    array,
    as_given,
    body_field,
    either,
    integer,
    not_built,
    of_type,
    record,
)

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def _content_kind(value: Json) -> ValueType[Any] | None:
    if isinstance(value, str):
        return TEXT
    return _PARTS if isinstance(value, list) else None


_PART = record(
    (
        body_field("type", words("text"), "Only text.", required=True),
        body_field("text", TEXT, "The text.", required=True),
    )
)
_PARTS = array(of_type(_PART, "text"), "parts of text", largest=1024)
_TEXT_OR_PARTS = either("a string or an array of parts", _content_kind, TEXT, _PARTS)


def _nothing(value: object) -> None:
    if value is not None and value not in ([], {}):
        raise not_built()


# Fields of answers that clients send back, which have no value here.
_NOTHING = value_type(_nothing, "null", "null", {"enum": [None, [], {}]})


def _read_name(value: object) -> str:
    name = TEXT.read(value)
    if not _NAME.fullmatch(name):
        raise MismatchError("text", "1 to 64 letters, digits, dots, dashes and underscores")
    return name


FUNCTION_NAME = value_type(
    _read_name, "a string", "str", {"type": "string", "pattern": "^[a-zA-Z0-9_.-]{1,64}$"}
)
_CALL = record(
    (
        body_field("id", text(1), "Of the call; its result names it.", required=True),
        body_field("type", words("function"), "Only functions.", "function"),
        body_field("index", integer(0, 1 << 16), "Of parts of streams; no effect."),
        body_field(
            "function",
            record(
                (
                    body_field("name", text(1), "Of the function.", required=True),
                    body_field("arguments", TEXT, "A JSON text.", required=True),
                )
            ),
            required=True,
        ),
    )
)
_NAMED = body_field("name", TEXT, "Name of the author, for templates that read it.")
_CONTENT = body_field("content", _TEXT_OR_PARTS, "The text of the message.", required=True)
# Of earlier answers, as clients send them back.
_OF_ANSWERS = (
    _NAMED,
    body_field("reasoning_content", TEXT, "The reasoning before the answer."),
    body_field("reasoning", TEXT, "The same by vLLM's newer name."),
    body_field("refusal", TEXT, "No effect."),
    *(body_field(name, _NOTHING) for name in ("annotations", "audio", "function_call")),
)


def _role(*roles: str) -> TypedField[Any]:
    return body_field("role", words(*roles), "Role of the author.", required=True)


_USER = record((_role("system", "developer", "user"), _CONTENT, _NAMED))
_ANSWER = record(
    (
        _role("assistant"),
        _CONTENT,
        *_OF_ANSWERS,
        body_field("tool_calls", _NOTHING, "Calls, none."),
    )
)
_CALLS = record(
    (
        _role("assistant"),
        body_field("content", _TEXT_OR_PARTS, "The text beside the calls."),
        *_OF_ANSWERS,
        body_field("tool_calls", array(_CALL, "calls", largest=128), required=True),
    )
)
_RESULT = record(
    (
        _role("tool"),
        _CONTENT,
        _NAMED,
        body_field("tool_call_id", text(1), "The call that this is the result of.", required=True),
    )
)


def _message_kind(value: Json) -> ValueType[Any] | None:
    if not isinstance(value, Mapping):
        return None
    if value.get("role") == "assistant":
        return _CALLS if value.get("tool_calls") else _ANSWER
    return _RESULT if value.get("role") == "tool" else _USER


MESSAGE = of_type(either("an object", _message_kind, _USER, _ANSWER, _CALLS, _RESULT))

_TOOL = record(
    (
        body_field("type", words("function"), "Only functions.", required=True),
        body_field(
            "function",
            record(
                (
                    body_field("name", FUNCTION_NAME, required=True),
                    body_field("description", TEXT, "For the model."),
                    body_field("parameters", ANY_OBJECT, "JSON Schema of the arguments."),
                    body_field("strict", BOOLEAN, "Kept where a call is forced."),
                )
            ),
            required=True,
        ),
    )
)
TOOLS = as_given(array(of_type(_TOOL, "function"), "functions", smallest=0, largest=128))
_NAMED_CHOICE = record(
    (
        body_field("type", words("function"), "A function.", required=True),
        body_field(
            "function", record((body_field("name", FUNCTION_NAME, required=True),)), required=True
        ),
    )
)
_WORD_CHOICE = words("none", "auto", "required")


def tool_choice(named: ValueType[Any]) -> ValueType[Any]:
    """The choice of tools: a word, or an object that names a function.

    Args:
        named: such an object.
    """

    def chosen(value: Json) -> ValueType[Any] | None:
        if isinstance(value, Mapping):
            return named
        return _WORD_CHOICE if isinstance(value, str) else None

    what = "none, auto, required, or an object that names a function"
    return either(what, chosen, _WORD_CHOICE, named)


TOOL_CHOICE = tool_choice(_NAMED_CHOICE)
