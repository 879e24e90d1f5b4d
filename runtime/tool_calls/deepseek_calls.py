"""Calls of DeepSeek between ``<｜tool▁calls▁begin｜>`` and ``<｜tool▁calls▁end｜>``.

V3 and R1 write ``function<｜tool▁sep｜>f`` and the arguments in a block of Markdown; V3.1 writes
``f<｜tool▁sep｜>`` and the arguments.
"""

from __future__ import annotations

from collections.abc import Generator

from graphgen.runtime.tool_calls.answer_reader import AnswerReader, Steps

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _CALL_END, _SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


class DeepseekCallReader(AnswerReader):
    """See the module."""

    special = (_CALLS, _CALLS_END, _CALL, _CALL_END, _SEP, *AnswerReader.thinks)

    def read(self) -> Steps:
        """See :meth:`AnswerReader.read`."""
        while mark := (yield from self.until((_CALLS, _CALL, _CALLS_END), self.content)):
            if mark == _CALL:
                yield from self._call()
            elif mark == _CALLS:
                # White space between the marks is left out.
                yield from self.space()

    def _call(self) -> Steps:
        """Read a call, and the mark of its end."""
        parts: list[str] = []
        mark = yield from self.until((_SEP, _CALL_END), parts.append)
        name = "".join(parts).strip()
        if mark == _SEP and name == "function":
            parts += [mark]
            yield from self.space()
            line: list[str] = []
            mark = (yield from self.until(("\n", "{", _CALL_END), line.append)) or ""
            name = "".join(line).strip().removesuffix("```json").strip()
            parts += line
        if not name or mark in ("", _CALL_END):
            self.content(_CALL + "".join(parts) + mark)
            return
        if mark == "{":
            self._text = mark + self._text
        give = self.call(name)
        if (yield from self._arguments()):
            yield from self.value(give)
        else:
            give("{}")
        yield from self._end()

    def _arguments(self) -> Generator[None, None, bool]:
        """Skip what stands before the arguments; False where there are none."""
        yield from self.space()
        if (yield from self.starts_with("```json")) or (yield from self.starts_with("```")):
            yield from self.space()
        return (yield from self.peek()) == "{"

    def _end(self) -> Steps:
        """Skip the end of a call; text in its place is content."""
        yield from self.space()
        if (yield from self.starts_with("```")):
            yield from self.space()
        if (yield from self.starts_with(_CALL_END)):
            yield from self.space()
