"""The tools of a chat: for its template, its grammar and the readers of its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.json_value import Json, parse_json
from graphgen.runtime.server.api_error import ApiError, refusal
from graphgen.runtime.tool_calls.answer_reader import AnswerReader, Tool
from graphgen.runtime.tool_calls.call_formats import call_reader, has_tools, reasoning_reader
from graphgen.runtime.tool_calls.default_prompt import tool_prompt
from graphgen.runtime.tool_calls.forced_calls import (
    ArgumentsReader,
    CallListReader,
    arguments_schema,
    calls_schema,
)
from graphgen.runtime.tool_calls.tagged_calls import TaggedCallReader

# Makes the reader of one answer; takes ``reasons``.
MakeReader = Callable[..., AnswerReader]


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """The template, the grammar and the reader of a chat with tools, or without.

    Attributes:
        shown: tools that the template gets.
        schema: JSON schema that the answer is forced to; ``None`` for none.
        reader: reads an answer; ``None`` for answers of content alone.
        make: makes such readers.
        named: the answer is the call of a function that the request names.
        prompt: shows the tools where the template does not; empty for none.
    """

    shown: Sequence[Json] = ()
    schema: Json = None
    reader: type[AnswerReader] | None = None
    make: MakeReader | None = None
    named: bool = False
    prompt: str = ""

    @property
    def begins_reasoning(self) -> str:
        """The mark after which a prompt ends inside of the reasoning; empty for none."""
        free = self.reader is not None and self.schema is None
        return self.reader.thinks[0] if free and self.reader is not None else ""


def plan_tools(fields: Mapping[str, object], template: str | None) -> ToolPlan:
    """The plan of a request.

    Args:
        fields: ``tools``, ``tool_choice``, ``parallel_tool_calls`` and ``response_format``.
        template: the chat template.

    Raises:
        ApiError: status 400 for a choice that contradicts the tools, and for a template that shows
            tools, but whose form of calls is unknown.
    """
    given = cast("Sequence[Json]", fields["tools"])
    tools = [_tool(one) for one in given]
    choice = fields["tool_choice"] or ("auto" if tools else "none")
    most = None if fields["parallel_tool_calls"] else 1
    if choice != "none" and not tools:
        raise _wrong("'tool_choice' is only for requests with tools", "tool_choice")
    _check_names(tools)
    form = cast("Mapping[str, object] | None", fields["response_format"])
    formed = form is not None and form["type"] != "text"
    if choice != "none" and formed:
        what = "'response_format' excludes tools, which have a form of their own"
        raise _wrong(what, "response_format")
    if choice == "none":
        # Of a form that is forced all is content.
        reader = None if formed else reasoning_reader(template)
        return ToolPlan(reader=reader, make=reader)
    shown = given if has_tools(template) else ()
    if isinstance(choice, Mapping):
        return _named(tools, cast("Mapping[str, object]", choice), shown)
    if choice == "required":
        try:
            schema = calls_schema(tools, most)
        except GraphgenError as error:
            raise refusal(error, "tools") from error
        make = partial(CallListReader, tools, most=most)
        return ToolPlan(shown, schema, CallListReader, make)
    return _auto(tools, template, given, most)


def _auto(
    tools: Sequence[Tool], template: str | None, given: Sequence[Json], most: int | None
) -> ToolPlan:
    """The plan of answers that decide by themselves whether they call a tool."""
    if not has_tools(template):
        reader, prompt = TaggedCallReader, tool_prompt(given)
        return ToolPlan((), None, reader, partial(reader, tools, most=most), prompt=prompt)
    reader = call_reader(template)
    if reader is None:
        what = (
            "the form in which this model calls tools is unknown; tool_choice 'required', or a "
            "named function, works by a grammar"
        )
        raise ApiError(400, what, param="tools", code="unsupported_parameter")
    return ToolPlan(given, None, reader, partial(reader, tools, most=most))


def _named(tools: Sequence[Tool], choice: Mapping[str, object], shown: Sequence[Json]) -> ToolPlan:
    """The plan of answers that are the call of one function."""
    name = cast("Mapping[str, object]", choice["function"])["name"]
    tool = next((one for one in tools if one.name == name), None)
    if tool is None:
        what = f"'tool_choice' names '{name}', which is not among the tools"
        raise _wrong(what, "tool_choice")
    make = partial(ArgumentsReader, [tool])
    return ToolPlan(shown, arguments_schema(tool), ArgumentsReader, make, named=True)


def _tool(given: Json) -> Tool:
    function = cast("Mapping[str, Json]", cast("Mapping[str, Json]", given)["function"])
    parameters = cast("Mapping[str, Json]", function.get("parameters") or {})
    return Tool(cast(str, function["name"]), parameters)


def _check_names(tools: Sequence[Tool]) -> None:
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _wrong(f"two tools have the name '{twice}'", "tools")


def _wrong(what: str, param: str) -> ApiError:
    return ApiError(400, what, param=param, code="invalid_value")


def template_messages(
    messages: Sequence[Mapping[str, object]], template: str | None
) -> list[dict[str, Json]]:
    """Messages as chat templates read them, with the fields that they have.

    ``developer`` is the new name of ``system``. Arguments of calls are objects, as transformers
    wants them, and texts where their JSON is broken.

    Args:
        messages: as they were read.
        template: the chat template.
    """
    return [_template_message(message, template or "") for message in messages]


def _template_message(message: Mapping[str, object], template: str) -> dict[str, Json]:
    content, role = message["content"], str(message["role"])
    found: dict[str, Json] = {"role": "system" if role == "developer" else role}
    if content is None or isinstance(content, str):
        found["content"] = content
    else:
        parts = cast("Sequence[Mapping[str, object]]", content)
        found["content"] = "".join(str(part["text"]) for part in parts)
    for name in ("name", "tool_call_id"):
        if message.get(name):
            found[name] = str(message[name])
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        found["reasoning_content"] = str(reasoning)
        if "thinking" in template:
            # The name that templates of gpt-oss read.
            found["thinking"] = str(reasoning)
    calls = cast("Sequence[Mapping[str, object]]", message.get("tool_calls") or ())
    if calls:
        found["tool_calls"] = [_template_call(call) for call in calls]
    return found


def _template_call(call: Mapping[str, object]) -> Json:
    function = cast("Mapping[str, str]", call["function"])
    text: Json = function["arguments"]
    try:
        arguments = cast("Json", parse_json(function["arguments"] or "{}"))
    except ValueError:
        arguments = text
    return {
        "id": str(call["id"]),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def reader_of(plan: ToolPlan, prompt_end: str) -> Callable[[], AnswerReader] | None:
    """Makes readers of the answers to a prompt; ``None`` for content alone.

    Args:
        plan: of the request.
        prompt_end: text of the last tokens of the prompt, with special tokens.
    """
    if plan.make is None:
        return None
    begin = plan.begins_reasoning
    if begin and prompt_end.rstrip().endswith(begin):
        return partial(plan.make, reasons=True)
    return plan.make
