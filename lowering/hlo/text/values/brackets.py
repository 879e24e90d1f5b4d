"""Split bracketed text into items; strings and nested brackets stay whole."""

from __future__ import annotations

import re

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
