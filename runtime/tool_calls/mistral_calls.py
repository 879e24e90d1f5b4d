"""Calls of Mistral after ``[TOOL_CALLS]``.

Up to version 7 of its tokenizer they are a list, ``[{"name": "f", "arguments": {"x": 1}}]``; from
version 11 on each is ``[TOOL_CALLS]f[ARGS]{"x": 1}``, with ``[CALL_ID]`` before the arguments or
not.
"""

from __future__ import annotations

import re

from graphgen.runtime.tool_calls.answer_reader import AnswerReader, PlainReader, Steps

_CALLS, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_NAME = re.compile(r"[\w.-]{1,256}")


class MistralReader(PlainReader):
    """Answers of Mistral without tool calls."""

    thinks = ("[THINK]", "[/THINK]")
    special = thinks


class MistralCallReader(AnswerReader):
    """See the module."""

    thinks = MistralReader.thinks
    special = (_CALLS, _ARGS, _ID, *thinks)

    def read(self) -> Steps:
        """See :meth:`AnswerReader.read`."""
        while (yield from self.until((_CALLS,), self.content)):
            space = yield from self.space()
            char = yield from self.peek()
            if char == "[":
                yield from self._list(_CALLS + space)
            elif char == "{":
                consumed = yield from self.call_object()
                if consumed is not None:
                    self.content(_CALLS + space + consumed)
            else:
                yield from self._named(_CALLS + space)

    def _list(self, before: str) -> Steps:
        """Read a list of calls."""
        before += yield from self.take()
        while True:
            before += yield from self.space()
            char = yield from self.peek()
            if char != "{":
                break
            consumed = yield from self.call_object()
            if consumed is not None:
                self.content(before + consumed)
                return
            before = yield from self.space()
            if (yield from self.peek()) != ",":
                break
            before += yield from self.take()
        if not (yield from self.starts_with("]")) and before.strip(", \n"):
            self.content(before)

    def _named(self, before: str) -> Steps:
        """Read a name and its arguments."""
        parts: list[str] = []
        mark = yield from self.until((_ARGS, _ID, "{", "\n"), parts.append)
        name = "".join(parts).strip()
        if mark == _ID:
            mark = yield from self.until((_ARGS, "\n"), lambda _: None)
        if mark == "{":
            self._text = mark + self._text
        if mark not in (_ARGS, "{") or not _NAME.fullmatch(name):
            self.content(before + "".join(parts) + ("" if mark == "{" else mark))
            return
        yield from self.space()
        give = self.call(name)
        if (yield from self.peek()) == "{":
            yield from self.value(give)
        else:
            give("{}")
