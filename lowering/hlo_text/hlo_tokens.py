"""A cursor over the tokens of HLO text, found one by one."""

from __future__ import annotations

import re

from graphgen.errors import GraphgenError

_TOKEN = re.compile(
    r"""(?:\s++ | /\*.*?\*/ | //[^\n]*)*+                # nothing
    ("(?:[^"\\]|\\.)*"                                  # a string
    | [a-z]\w*\[[^\]\[]*\](?:\{[^{}]*\})?                # a shape, with its layout
    | ->
    | %?[\w.$+\-@]*[\w.$+@](?:-(?!>)[\w.$+@]*)*          # a name, a number, an opcode
    | .)""",
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"%?[\w.$\-]+")
CLOSING = {"(": ")", "{": "}", "[": "]"}
_END = ("", 0, 0)


class HloTokens:
    """A cursor over a text.

    Args:
        text: the whole.
        name: of its file, for error messages.

    Attributes:
        at: where the next token, or what stands before it, begins.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name_of_file = name
        self.at = 0
        self._seen_at = -1
        self._seen = _END

    def _next(self) -> tuple[str, int, int]:
        """The next token with its start and end; an empty one at the end."""
        if self._seen_at != self.at:
            match = _TOKEN.match(self.text, self.at)
            size = len(self.text)
            self._seen = (match[1], match.start(1), match.end()) if match else ("", size, size)
            self._seen_at = self.at
        return self._seen

    def peek(self) -> str:
        """The next token; empty at the end."""
        return self._next()[0]

    def follows(self, word: str) -> bool:
        """The token after the next one is this one."""
        match = _TOKEN.match(self.text, self._next()[2])
        return match is not None and match[1] == word

    def position(self) -> int:
        """The place of the next token."""
        return self._next()[1]

    def take(self) -> str:
        """Take the next token (GG0201 at the end)."""
        word, _, end = self._next()
        if not word:
            raise self.fail("the text ends too early")
        self.at = end
        return word

    def accept(self, word: str) -> bool:
        """Take the next token if it is this one."""
        found, _, end = self._next()
        if found != word:
            return False
        self.at = end
        return True

    def expect(self, word: str) -> None:
        """Take exactly this token (GG0201)."""
        if not self.accept(word):
            raise self.fail(f"expected '{word}', found '{self.peek()[:40] or 'the end'}'")

    def name(self) -> str:
        """Take the name of an instruction or a computation, without its ``%``."""
        word = self.peek()
        if not _NAME.fullmatch(word):
            raise self.fail(f"expected a name, found '{word[:40] or 'the end'}'")
        return self.take().removeprefix("%")

    def group(self) -> str:
        """Take the text from an opening bracket to its closing one (GG0201 if there is none)."""
        start, open_ = self.position(), [CLOSING[self.take()]]
        while open_:
            word = self.peek()
            if not word:
                raise self.fail("a bracket is never closed", start)
            self.take()
            if word in CLOSING:
                open_.append(CLOSING[word])
            elif word == open_[-1]:
                open_.pop()
        return self.text[start : self.at]

    def value(self) -> str:
        """Take the text of an attribute's value: words, strings and brackets."""
        start = end = self.position()
        if self.peek().startswith("mesh["):
            return self._mesh()
        while (word := self.peek()) and word not in (",", "}", ")"):
            if word in CLOSING:
                self.group()
            else:
                self.take()
            end = self.at
            # Groups given as a formula and labels of a convolution have several tokens.
            following = self.peek()
            if following not in ("<", "->", "T", "?") and word not in ("<", "->", "T", "=", "?"):
                break
        return self.text[start:end]

    def _mesh(self) -> str:
        """Take the text of a mesh, the order of its devices, and the axes chosen of it."""
        start, at = self.position(), self._next()[2]
        self.take()
        if self.accept(",") and not (self.accept("device_ids") and self.accept("=")):
            self.at = at
            return self.text[start:at]
        if self.peek() in CLOSING:
            self.group()
        if self.peek() == "{":
            self.group()
        return self.text[start : self.at]

    def literal(self) -> str:
        """Take the text of a literal after its shape, or of a tuple of such."""
        start = self.position()
        if self.peek() == "(":
            self.group()
            return self.text[start : self.at]
        # A blank parts the layout of the shape from the elements.
        shape, _, layout = self.take().partition("{")
        if not layout and self.peek() == "{" and "," not in shape and shape.endswith("[]"):
            return self.text[start : self.at] + self.group()
        self.group() if self.peek() in CLOSING else self.take()
        return self.text[start : self.at]

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
