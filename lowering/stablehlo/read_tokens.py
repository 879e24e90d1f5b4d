"""Characters of MLIR text as tokens, with the place of each for error messages."""

from __future__ import annotations

import re
from bisect import bisect_right

from graphgen.errors import GraphgenError

_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s+|//[^\n]*)+)
  | (?P<tensor>tensor<(?:[^<>"]|<[^<>"]*>)*>)
  | (?P<value>%[\w$.\-]+(?:\#\d+|:\d+)?)
  | (?P<block>\^[\w$.\-]+)
  | (?P<symbol>@(?:[\w$.\-]+|"(?:[^"\\]|\\.)*"))
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<arrow>->)
  | (?P<number>0x[0-9a-fA-F]+|-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
  | (?P<alias>[\#!][\w$.]+)
  | (?P<word>[A-Za-z_][\w$.]*)
  | (?P<sign>[\[\](){}<>,:=*+?-])
    """,
    re.VERBOSE | re.ASCII,
)
# Deeper nesting than any compiler writes: an error, rather than Python's own limit.
DEEPEST = 100


class Unread(Exception):  # noqa: N818 (it is no mistake of anybody: jaxlib may read it)
    """A form of MLIR's text that the parser written here does not know.

    Attributes:
        error: what the user is told where jaxlib cannot read it either.
    """

    def __init__(self, error: GraphgenError) -> None:
        super().__init__(error.what)
        self.error = error


class Tokens:
    """One token ahead of the parser.

    Attributes:
        kind: of the next token: ``value``, ``word``, ``sign``, ...; ``end`` after the last.
        text: its characters.
        at: where it begins.
    """

    def __init__(self, text: str, filename: str) -> None:
        self.source = text
        self.filename = filename
        self.kind = "space"
        self.text = ""
        self.at = 0
        self._end = 0
        self._depth = 0
        self._lines: list[int] | None = None
        self.advance()

    def advance(self) -> str:
        """Step over the next token and return its text."""
        before = self.text
        while True:
            found = _TOKEN.match(self.source, self._end)
            if found is None:
                return self._finish(before)
            self._end = found.end()
            kind = found.lastgroup
            if kind != "space":
                self.kind, self.text, self.at = kind or "", found.group(), found.start()
                return before

    def _finish(self, before: str) -> str:
        self.kind, self.text, self.at = "end", "", self._end
        if self._end < len(self.source):
            raise self.error("this character has no meaning here")
        return before

    def take(self, text: str) -> bool:
        """Step over ``text`` if it is next."""
        if self.text != text or self.kind == "string":
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        """Step over ``text``, which must be next (GG0201)."""
        if not self.take(text):
            raise self.error(f"expected '{text}'")

    def need(self, kind: str, what: str) -> str:
        """Step over a token of this kind and return it (GG0201)."""
        if self.kind != kind:
            raise self.error(f"expected {what}")
        return self.advance()

    def deeper(self) -> None:
        """Enter a nesting; refuses what no compiler writes (GG0201)."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.error(f"nested deeper than {DEEPEST}")

    def shallower(self) -> None:
        """Leave a nesting."""
        self._depth -= 1

    def line_of(self, at: int) -> int:
        """The 1-based line of a place."""
        if self._lines is None:
            self._lines = [found.start() for found in re.finditer("\n", self.source)]
        return bisect_right(self._lines, at - 1) + 1

    def where(self, at: int) -> str:
        """``file:line:column`` of a place."""
        column = at - (self.source.rfind("\n", 0, at) + 1)
        return f"{self.filename}:{self.line_of(at)}:{column + 1}"

    def error(self, what: str, at: int | None = None, help: str = "") -> GraphgenError:
        """A syntax error (GG0201) at the next token, or at ``at``, with its line and a caret."""
        place = self.at if at is None else at
        start = self.source.rfind("\n", 0, place) + 1
        end = self.source.find("\n", place)
        line = self.source[start : end if end >= 0 else len(self.source)]
        # A constant may be a line of megabytes.
        from_ = max(place - start - 60, 0)
        shown = line[from_ : from_ + 120]
        width = min(max(len(self.text), 1) if place == self.at else 1, 40)
        caret = " " * (place - start - from_) + "^" * width
        return GraphgenError(
            "GG0201", what, where=self.where(place), note=f"{shown}\n{caret}", help=help
        )


_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)")
_PLAIN = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}


def unquoted(text: str) -> str:
    """The characters of a string token; MLIR writes bytes that are not plain as ``\\XX``."""
    body = text[1:-1]
    if "\\" not in body:
        return body

    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes.fromhex(code.decode()) if len(code) == 2 else _PLAIN.get(code, code)

    return _ESCAPE.sub(plain, body.encode()).decode("utf-8", "replace")
