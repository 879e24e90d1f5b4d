"""Calls of Llama 3: objects ``{"name": "f", "parameters": {"x": 1}}`` without marks around them.

``<|python_tag|>`` may stand before them, and ``;`` between them. An object is a call if it has the
name of a tool and no other keys; any other one is content.
"""

from __future__ import annotations

from graphgen.runtime.tool_calls.answer_reader import AnswerReader, Steps

_TAG = "<|python_tag|>"


class LlamaCallReader(AnswerReader):
    """See the module."""

    special = (_TAG, *AnswerReader.thinks)

    def read(self) -> Steps:
        """See :meth:`AnswerReader.read`."""
        while mark := (yield from self.until((_TAG, "{"), self.content)):
            before = ""
            if mark == _TAG:
                before = mark + (yield from self.space())
                if (yield from self.peek()) != "{":
                    self.content(before)
                    continue
            else:
                self._text = "{" + self._text
            consumed = yield from self.call_object(known=True)
            if consumed is not None:
                self.content(before + consumed)
                continue
            yield from self._divider()

    def _divider(self) -> Steps:
        """Leave out what stands between two calls."""
        space = yield from self.space()
        char = yield from self.peek()
        if char not in (";", ","):
            self.content(space)
            return
        yield from self.take()
        more = yield from self.space()
        if (yield from self.peek()) not in ("{", "", "<"):
            self.content(space + char + more)
