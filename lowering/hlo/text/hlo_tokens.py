"""Tokenizer of HLO text."""

from __future__ import annotations

import re

from graphgen.errors import GraphgenError

_TOKEN = re.compile(
    r"""\s+ | /\*.*?\*/ | //[^\n]*                       # nothing
    | ("(?:[^"\\]|\\.)*"                                  # a string
    | [a-z]\w*\[[^\]\[]*\](?:\{[^{}]*\})?                 # a shape, with its layout
    | ->
    | %?[\w.$+\-@]*[\w.$+@](?:-(?!>)[\w.$+@]*)*           # a name, a number, an opcode
    | .)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"(": ")", "{": "}", "[": "]"}


class HloTokens:
    """A cursor over the tokens of a text.

    Args:
        text: the whole.
        name: of its file, for error messages.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name_of_file = name
        self._words: list[str] = []
        self._starts: list[int] = []
        for match in _TOKEN.finditer(text):
            if match[1] is not None:
                self._words.append(match[1])
                self._starts.append(match.start())
        self._next = 0

    def peek(self, ahead: int = 0) -> str:
        """The next token, or a later one; empty at the end."""
        at = self._next + ahead
        return self._words[at] if at < len(self._words) else ""

    def position(self) -> int:
        """The place of the next token."""
        return self._starts[self._next] if self._next < len(self._starts) else len(self.text)

    def take(self) -> str:
        """Take the next token (GG0201 at the end)."""
        if self._next >= len(self._words):
            raise self.fail("the text ends too early")
        self._next += 1
        return self._words[self._next - 1]

    def expect(self, word: str) -> None:
        """Take exactly this token (GG0201)."""
        if self.peek() != word:
            raise self.fail(f"expected '{word}', found '{self.peek()[:40] or 'the end'}'")
        self._next += 1

    def name(self) -> str:
        """Take the name of an instruction or a computation, without its ``%``."""
        word = self.peek()
        if not re.fullmatch(r"%?[\w.$\-]+", word):
            raise self.fail(f"expected a name, found '{word[:40] or 'the end'}'")
        self._next += 1
        return word.removeprefix("%")

    def group(self) -> str:
        """Take the text from an opening bracket to its closing one (GG0201 if there is none)."""
        start, open_ = self.position(), [_CLOSING[self.take()]]
        while open_:
            at = self._next
            word = self.take() if at < len(self._words) else ""
            if not word:
                raise self.fail("a bracket is never closed", start)
            if word in _CLOSING:
                open_.append(_CLOSING[word])
            elif word == open_[-1]:
                open_.pop()
        return self.text[start : self._starts[self._next - 1] + 1]

    def value(self) -> str:
        """Take the text of an attribute's value: words, strings and brackets."""
        start = end = self.position()
        while (word := self.peek()) and word not in (",", "}", ")"):
            if word in _CLOSING:
                end = self.position() + len(self.group())
            else:
                end = self.position() + len(self.take())
            # Groups given as a formula and labels of a convolution have several tokens.
            following = self.peek()
            if following not in ("<", "->", "T") and word not in ("<", "->", "T", "="):
                break
        return self.text[start:end]

    def shape(self) -> str:
        """Take the text of a shape."""
        if self.peek() == "(":
            return self.group()
        word = self.take()
        return word + (self.group() if self.peek() == "{" and "[" in word else "")

    def fail(self, what: str, at: int | None = None) -> GraphgenError:
        """An error (GG0201) at a place, by default that of the next token."""
        at = self.position() if at is None else at
        start = self.text.rfind("\n", 0, at) + 1
        line = self.text[start : at + 120].split("\n")[0]
        column = at - start
        # Of a very long line, only the part near the place.
        cut = max(0, column - 60)
        shown = line[cut : cut + 160]
        return GraphgenError(
            "GG0201",
            what,
            where=f"{self.name_of_file}:{self.text.count(chr(10), 0, at) + 1}:{column + 1}",
            note=f"{shown}\n{' ' * (column - cut)}^",
        )
