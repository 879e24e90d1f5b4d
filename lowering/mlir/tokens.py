"""Tokenizer of MLIR text; each token has its position for error messages."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from graphgen.errors import GraphgenError

_START = "{-#"
_BLOB = re.compile(r'([\w.$\-]+|"(?:[^"\\]|\\.)*")\s*:\s*"0x([0-9A-Fa-f]*)"')
# Digits of the alignment in front of the bytes.
_ALIGNMENT = 8


def split_resources(text: str) -> tuple[str, dict[str, str]]:
    """The text without its resources, and the bytes of each in hexadecimal by its name."""
    start = text.rfind(_START)
    if start < 0 or "#-}" not in text[start:]:
        return text, {}
    found = _BLOB.findall(text, start)
    return text[:start], {name.strip('"'): data[_ALIGNMENT:] for name, data in found}


_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s+|//[^\n]*)+)
  | (?P<tensor>tensor<(?:[^<>"]|<(?:[^<>"]|<[^<>"]*>)*>)*>)
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
# No compiler nests deeper: an error comes before Python's own recursion limit.
DEEPEST = 100


class UnknownForm(Exception):  # noqa: N818 (an outcome, not a mistake: jaxlib may read it)
    """An assembly form that the parser of this package does not know.

    Attributes:
        error: the error to raise where jaxlib cannot read it either.
    """

    def __init__(self, error: GraphgenError) -> None:
        super().__init__(error.what)
        self.error = error


class MlirTokens:
    """Token stream with one token of lookahead.

    Attributes:
        kind: of the next token: ``value``, ``word``, ``sign``, ...; ``end`` after the last.
        text: characters of the next token.
        at: offset of the next token in ``source``.
        resources: bytes after the module in hexadecimal, by their names.
        passed: offset after the last token that was stepped over.
    """

    def __init__(self, text: str, filename: str) -> None:
        self.source, self.resources = split_resources(text)
        self.filename = filename
        self.kind = "space"
        self.text = ""
        self.at = 0
        self.passed = 0
        self._end = 0
        self._depth = 0
        self._lines: list[int] | None = None
        self.advance()

    def advance(self) -> str:
        """Step over the next token and return its text."""
        before = self.text
        self.passed = self._end
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

    def items(self, close: str) -> Iterator[None]:
        """Yield once per item of a comma-separated list, and step over ``close`` at its end."""
        while not self.take(close):
            yield
            if self.text != close:
                self.expect(",")

    def deeper(self) -> None:
        """Enter a nesting (GG0201 beyond :data:`DEEPEST`)."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.error(f"nested deeper than {DEEPEST}")

    def shallower(self) -> None:
        """Leave a nesting."""
        self._depth -= 1

    def line_of(self, at: int) -> int:
        """Return the 1-based line of an offset."""
        if self._lines is None:
            self._lines = [found.start() for found in re.finditer("\n", self.source)]
        return bisect_right(self._lines, at - 1) + 1

    def where(self, at: int) -> str:
        """Format an offset as ``file:line:column``."""
        column = at - (self.source.rfind("\n", 0, at) + 1)
        return f"{self.filename}:{self.line_of(at)}:{column + 1}"

    def error(self, what: str, at: int | None = None, help: str = "") -> GraphgenError:
        """Make a syntax error (GG0201) at ``at``, by default at the next token, with a caret."""
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
    """Decode a string token; what is not UTF-8 in it is replaced."""
    body = text[1:-1]
    return unquoted_bytes(text).decode("utf-8", "replace") if "\\" in body else body


def unquoted_bytes(text: str) -> bytes:
    """The bytes of a string token; MLIR escapes those that are not printable as ``\\XX``."""

    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes.fromhex(code.decode()) if len(code) == 2 else _PLAIN.get(code, code)

    return _ESCAPE.sub(plain, text[1:-1].encode())
