"""The text of an answer, token by token, up to the first stop string."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from graphgen.runtime.tokenizer.text_stream import TextStream


class Detokenizer(Protocol):
    """The part of :class:`~graphgen.runtime.tokenizer.tokenizer.Tokenizer` that gives text."""

    def stream(
        self,
        after: Sequence[int] = (),
        *,
        skip_special: bool = True,
        kept: Collection[str] = (),
    ) -> TextStream:
        """A new stream from ids, one at a time, to the text that goes on after others."""
        ...


class AnswerText:
    """Incremental text of one answer.

    The results of :meth:`push` and :meth:`end`, joined, are the decoding of all tokens, cut before
    the stop string that is complete first; of several that are complete at the same character,
    before the longest one. Where the text is cut depends on its characters only, not on its tokens.

    A result has whole characters only. The end of the text so far is held back while it may be the
    beginning of a stop string.

    Args:
        stream: a new stream of the tokenizer. One that gives its text with ``flush`` only lets a
            stop string be found at the end of the answer only.
        stop: the stop strings, none of them empty.

    Attributes:
        stopped: a stop string is complete; there is no more text.
    """

    def __init__(self, stream: TextStream, stop: Sequence[str] = ()) -> None:
        self._stream: Final = stream
        self._stop: Final = tuple(stop)
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that a token makes final."""
        return self._grown(self._stream.push(token))

    def end(self) -> str:
        """The rest of the text, after the last token."""
        text = self._grown(self._stream.flush())
        rest, self._held = self._held, ""
        return text + rest

    def _grown(self, new: str) -> str:
        """The text that ``new`` makes final; the rest of it is held back."""
        if self.stopped or not new:
            return ""
        text = self._held + new
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        kept = len(text) - self._beginning(text)
        self._held = text[kept:]
        return text[:kept]

    def _beginning(self, text: str) -> int:
        """Length of the longest end of a text that begins a stop string."""
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stop):
                return size
        return 0
