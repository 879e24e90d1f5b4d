"""Calls between ``<tool_call>`` and ``</tool_call>``: Hermes, Qwen 2.5 and 3, and Qwen3-Coder.

Hermes and Qwen write JSON, ``{"name": "f", "arguments": {"x": 1}}``; Qwen3-Coder writes
``<function=f>`` with ``<parameter=x>`` inside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import cast

from graphgen.json_value import Json, parse_json
from graphgen.runtime.tool_calls.answer_reader import AnswerReader, Steps

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _END = "<function=", "</function>"
_PARAMETER, _END_PARAMETER = "<parameter=", "</parameter>"


class TaggedCallReader(AnswerReader):
    """See the module."""

    special = (_OPEN, _CLOSE, *AnswerReader.thinks)

    def read(self) -> Steps:
        """See :meth:`AnswerReader.read`."""
        while (yield from self.until((_OPEN,), self.content)):
            space = yield from self.space()
            if (yield from self.peek()) == "{":
                consumed = yield from self.call_object()
                if consumed is not None:
                    self.content(_OPEN + space + consumed)
                    continue
            elif (yield from self.starts_with(_FUNCTION)):
                yield from self._function(_OPEN + space + _FUNCTION)
            else:
                self.content(_OPEN + space)
                continue
            yield from self.space()
            yield from self.starts_with(_CLOSE)

    def _function(self, before: str) -> Steps:
        """Read a function and its parameters, after text that is content without a name."""
        parts: list[str] = []
        found = yield from self.until((">", "\n"), parts.append)
        name = "".join(parts).strip()
        if found != ">" or not name:
            self.content(before + "".join(parts) + found)
            return
        give, before = self.call(name), "{"
        while (yield from self.until((_PARAMETER, _END), lambda _: None)) == _PARAMETER:
            key: list[str] = []
            yield from self.until((">",), key.append)
            before = yield from self._parameter(name, "".join(key).strip(), before, give)
        give("{}" if before == "{" else "}")

    def _parameter(
        self, name: str, key: str, before: str, give: Callable[[str], None]
    ) -> Generator[None, None, str]:
        """Read a value, and give it as an entry of the arguments; what stands before the next."""
        parts: list[str] = []
        yield from self.until((_END_PARAMETER,), parts.append)
        text = "".join(parts).removeprefix("\n").removesuffix("\n")
        give(f"{before}{json.dumps(key, ensure_ascii=False)}: {self._json(name, key, text)}")
        return ", "

    def _json(self, name: str, key: str, text: str) -> str:
        """A value as JSON: a text, unless the parameter is of another type and it reads as one."""
        tool = self.tools.get(name)
        properties = tool.parameters.get("properties") if tool is not None else None
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        kind = (
            cast("Mapping[str, Json]", schema).get("type") if isinstance(schema, Mapping) else None
        )
        if kind is not None and kind != "string":
            try:
                return json.dumps(parse_json(text), ensure_ascii=False)
            except ValueError:
                pass
        return json.dumps(text, ensure_ascii=False)
