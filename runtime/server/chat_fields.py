"""The fields of chats: messages by role, tools, and the choice of a tool."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphgen.json_value import Json
from graphgen.runtime.server.api_error import ApiError
from graphgen.runtime.server.field_kinds import (
    ANY_OBJECT,
    BOOLEAN,
    TEXT,
    BodyField,
    FieldKind,
    array,
    as_given,
    choice,
    either,
    integer,
    of_type,
    record,
    text,
)

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def _content_kind(value: Json) -> FieldKind | None:
    if isinstance(value, str):
        return TEXT
    return _PARTS if isinstance(value, list) else None


_PART = record(
    (
        BodyField("type", choice("text"), "Only text.", required=True),
        BodyField("text", TEXT, "The text.", required=True),
    )
)
_PARTS = array(of_type(_PART, "text"), "parts of text", largest=1024)
_TEXT_OR_PARTS = either("a string or an array of parts", _content_kind, TEXT, _PARTS)


def _nothing(value: Json, path: str) -> None:
    if value is not None and value not in ([], {}):
        raise ApiError(
            400,
            f"'{path}' is not built; leave it out",
            param=path,
            code="unsupported_parameter",
        )


# Fields of answers that clients send back, which have no value here.
_NOTHING = FieldKind("null", {"enum": [None, [], {}]}, _nothing)


def _read_name(value: Json, path: str) -> str:
    name = TEXT.read(value, path)
    assert isinstance(name, str)
    if not _NAME.fullmatch(name):
        what = f"'{path}' is not 1 to 64 letters, digits, dots, dashes and underscores"
        raise ApiError(400, what, param=path, code="invalid_value")
    return name


FUNCTION_NAME = FieldKind(
    "a string", {"type": "string", "pattern": "^[a-zA-Z0-9_.-]{1,64}$"}, _read_name
)
_CALL = record(
    (
        BodyField("id", text(1), "Of the call; its result names it.", required=True),
        BodyField("type", choice("function"), "Only functions.", "function"),
        BodyField("index", integer(0, 1 << 16), "Of parts of streams; no effect."),
        BodyField(
            "function",
            record(
                (
                    BodyField("name", text(1), "Of the function.", required=True),
                    BodyField("arguments", TEXT, "A JSON text.", required=True),
                )
            ),
            required=True,
        ),
    )
)
_NAMED = BodyField("name", TEXT, "Name of the author, for templates that read it.")
_CONTENT = BodyField("content", _TEXT_OR_PARTS, "The text of the message.", required=True)
# Of earlier answers, as clients send them back.
_OF_ANSWERS = (
    _NAMED,
    BodyField("reasoning_content", TEXT, "The reasoning before the answer."),
    BodyField("reasoning", TEXT, "The same by vLLM's newer name."),
    BodyField("refusal", TEXT, "No effect."),
    *(BodyField(name, _NOTHING) for name in ("annotations", "audio", "function_call")),
)


def _role(*roles: str) -> BodyField:
    return BodyField("role", choice(*roles), "Role of the author.", required=True)


_USER = record((_role("system", "developer", "user"), _CONTENT, _NAMED))
_ANSWER = record(
    (
        _role("assistant"),
        _CONTENT,
        *_OF_ANSWERS,
        BodyField("tool_calls", _NOTHING, "Calls, none."),
    )
)
_CALLS = record(
    (
        _role("assistant"),
        BodyField("content", _TEXT_OR_PARTS, "The text beside the calls."),
        *_OF_ANSWERS,
        BodyField("tool_calls", array(_CALL, "calls", largest=128), required=True),
    )
)
_RESULT = record(
    (
        _role("tool"),
        _CONTENT,
        _NAMED,
        BodyField("tool_call_id", text(1), "The call that this is the result of.", required=True),
    )
)


def _message_kind(value: Json) -> FieldKind | None:
    if not isinstance(value, Mapping):
        return None
    if value.get("role") == "assistant":
        return _CALLS if value.get("tool_calls") else _ANSWER
    return _RESULT if value.get("role") == "tool" else _USER


MESSAGE = of_type(either("an object", _message_kind, _USER, _ANSWER, _CALLS, _RESULT))

_TOOL = record(
    (
        BodyField("type", choice("function"), "Only functions.", required=True),
        BodyField(
            "function",
            record(
                (
                    BodyField("name", FUNCTION_NAME, required=True),
                    BodyField("description", TEXT, "For the model."),
                    BodyField("parameters", ANY_OBJECT, "JSON Schema of the arguments."),
                    BodyField("strict", BOOLEAN, "Kept where a call is forced."),
                )
            ),
            required=True,
        ),
    )
)
TOOLS = as_given(array(of_type(_TOOL, "function"), "functions", smallest=0, largest=128))
_NAMED_CHOICE = record(
    (
        BodyField("type", choice("function"), "A function.", required=True),
        BodyField(
            "function", record((BodyField("name", FUNCTION_NAME, required=True),)), required=True
        ),
    )
)
_WORD_CHOICE = choice("none", "auto", "required")


def tool_choice(named: FieldKind) -> FieldKind:
    """The choice of tools: a word, or an object that names a function.

    Args:
        named: such an object.
    """

    def chosen(value: Json) -> FieldKind | None:
        if isinstance(value, Mapping):
            return named
        return _WORD_CHOICE if isinstance(value, str) else None

    what = "none, auto, required, or an object that names a function"
    return either(what, chosen, _WORD_CHOICE, named)


TOOL_CHOICE = tool_choice(_NAMED_CHOICE)
