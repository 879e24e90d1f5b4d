"""Strings of HLO text, in the escapes of C: any bytes, of which most are UTF-8."""

from __future__ import annotations

import re


class BadAttributeError(Exception):
    """A value that an attribute cannot have."""


class TextNameError(Exception):
    """A name that nothing before it in the text defines, or that something does already."""


_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[^"(){}\[\],]+|.', re.DOTALL)


def inside(text: str) -> str:
    """Everything between the first and the last character, without blanks around it."""
    return text.strip()[1:-1].strip()


def split_items(text: str) -> list[str]:
    """Split at the commas that are in no bracket and no string."""
    items: list[str] = []
    start = depth = 0
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece in "({[":
            depth += 1
        elif piece in ")}]":
            depth -= 1
        elif piece == "," and depth == 0:
            items.append(text[start : match.start()].strip())
            start = match.end()
    last = text[start:].strip()
    return [*items, last] if last or items else []


# A string with its quotes; its characters in group 1.
STRING = r'"((?:[^"\\]|\\.)*)"'
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "a": b"\a", "b": b"\b", "f": b"\f", "v": b"\v"}
_ESCAPED = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]+)|(.))", re.DOTALL)


def quoted_bytes(data: bytes) -> str:
    """Bytes as a string of HLO text; all but printable ASCII is escaped."""
    return f'"{"".join([_shown(byte) for byte in data])}"'


def _shown(byte: int) -> str:
    return _ESCAPED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")


def quoted(text: str) -> str:
    """Text as a string of HLO text."""
    return f'"{text}"' if _PLAIN.fullmatch(text) else quoted_bytes(text.encode())


def unquoted_bytes(text: str) -> bytes:
    """The bytes of a string, or of a bare word as it stands."""
    if not text.startswith('"'):
        return text.encode()
    if "\\" not in text:
        return text[1:-1].encode()
    out: list[bytes] = []
    at, inner = 0, text[1:-1]
    for match in _ESCAPE.finditer(inner):
        out.append(inner[at : match.start()].encode())
        octal, digits, letter = match.groups()
        if letter is not None:
            out.append(_ESCAPES.get(letter, letter.encode()))
        else:
            out.append(bytes([(int(octal, 8) if octal else int(digits, 16)) & 255]))
        at = match.end()
    out.append(inner[at:].encode())
    return b"".join(out)


def unquoted(text: str) -> str:
    """The text of a string; bytes of another encoding than UTF-8 are kept as Latin-1."""
    data = unquoted_bytes(text)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
