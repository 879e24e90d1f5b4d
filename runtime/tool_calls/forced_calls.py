"""Calls that a grammar forces: the arguments of a function, or a list of calls alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.runtime.tool_calls.answer_reader import AnswerReader, Steps, Tool

# One form of white space, as Python and templates write JSON: with any, a model may write nothing
# else for ever.
_SPACES: Mapping[str, Json] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
# Where a schema keeps those that it refers to.
_SHARED = ("$defs", "definitions")


class ArgumentsReader(AnswerReader):
    """An answer that is the arguments of the only tool."""

    def thinking(self) -> Steps:
        """Do nothing: the grammar leaves no room for it."""
        yield from ()

    def read(self) -> Steps:
        """See :meth:`AnswerReader.read`."""
        (name,) = self.tools
        yield from self.space()
        if (yield from self.peek()):
            yield from self.until((), self.call(name))


class CallListReader(AnswerReader):
    """An answer that is a list of calls."""

    def thinking(self) -> Steps:
        """Do nothing: the grammar leaves no room for it."""
        yield from ()

    def read(self) -> Steps:
        """See :meth:`AnswerReader.read`."""
        while (yield from self.until(("{",), lambda _: None)):
            self._text = "{" + self._text
            yield from self.call_object()


def arguments_schema(tool: Tool) -> Json:
    """The schema of an answer that is the arguments of one function."""
    return {**_parameters(tool), "x-guidance": _SPACES}


def _parameters(tool: Tool) -> dict[str, Json]:
    return dict(tool.parameters) or {"type": "object", "additionalProperties": False}


def calls_schema(tools: Sequence[Tool], most: int | None) -> Json:
    """The schema of a list of calls.

    Args:
        tools: functions that may be called.
        most: largest number of calls.

    Raises:
        GraphgenError: GG0705 for tools that have different schemas of one name in ``$defs``.
    """
    shared: dict[str, dict[str, Json]] = {}
    calls: list[Json] = []
    for tool in tools:
        schema = _parameters(tool)
        for place in _SHARED:
            _share(shared.setdefault(place, {}), schema.pop(place, None), tool.name)
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": schema},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    limit: dict[str, Json] = {} if most is None else {"maxItems": most}
    kept: dict[str, Json] = {place: found for place, found in shared.items() if found}
    made: dict[str, Json] = {"type": "array", "items": {"anyOf": calls}, "minItems": 1}
    return {**made, **limit, **kept, "x-guidance": _SPACES}


def _share(known: dict[str, Json], found: Json, name: str) -> None:
    given: Mapping[str, Json] = found if isinstance(found, Mapping) else {}
    for key, schema in given.items():
        if known.setdefault(key, schema) != schema:
            raise GraphgenError(
                "GG0705",
                f"the tool '{name}' has another schema '{key}' than a tool before it",
                help="give the schemas that tools refer to different names",
            )
