"""Channels and calls of gpt-oss, in the form that OpenAI calls Harmony.

An answer is messages with a header each: ``<|channel|>analysis<|message|>`` has reasoning,
``final`` the answer, and a header with ``to=functions.f`` the arguments of a call. ``<|end|>`` ends
a message, and ``<|start|>assistant`` begins the next one.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from graphgen.runtime.tool_calls.answer_reader import AnswerReader, Steps

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_CONSTRAIN = "<|constrain|>"
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w.-]+)")
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")


class HarmonyReader(AnswerReader):
    """See the module."""

    special = (_START, _CHANNEL, _MESSAGE, *_ENDS, _CONSTRAIN)

    def thinking(self) -> Steps:
        """Do nothing: reasoning is a channel."""
        yield from ()

    def read(self) -> Steps:
        """See :meth:`AnswerReader.read`."""
        # The prompt has ended inside of a header: its recipient may come first.
        space = yield from self.space()
        header = ["to="] if (yield from self.starts_with("to=")) else []
        if not header:
            self.content(space)
            mark = yield from self.until((_CHANNEL, _START), self.content)
            header = [mark] if mark else []
        while header:
            mark = yield from self.until((_MESSAGE, *_ENDS), header.append)
            if mark == _MESSAGE:
                mark = yield from self._message("".join(header))
            else:
                mark = yield from self.until((_CHANNEL, _START), lambda _: None)
            header = [mark] if mark else []

    def _message(self, header: str) -> Generator[None, None, str]:
        """Read the text of a message; the mark that the next header begins with."""
        channel, recipient = _CHANNEL_NAME.search(header), _RECIPIENT.search(header)
        marks = (*_ENDS, _START, _CHANNEL)
        if recipient is not None and self.tools:
            give = self.call(recipient[1])
            if (yield from self.peek()) in ("", "<"):
                give("{}")
            mark = yield from self.until(marks, give)
        elif channel is not None and channel[1] == "analysis":
            mark = yield from self.until(marks, self.reasoning)
            self.ends_reasoning()
            self._reasoning.stripped = True
        else:
            mark = yield from self.until(marks, self.content)
        if mark in (_START, _CHANNEL):
            return mark
        return (yield from self.until((_CHANNEL, _START), self.content))
