"""Names made unique in the way of XLA, so that a text has the same names there and here."""

from __future__ import annotations

import re

_NUMBERED = re.compile(r"(.*)\.(0|[1-9]\d*)", re.DOTALL)
_ILLEGAL = re.compile(r"[^\w.\-]", re.ASCII)


class UniqueNames:
    """The names given so far: of each stem, its numbers, of which 0 is the stem alone.

    Attributes:
        last: the name given last.
    """

    def __init__(self) -> None:
        self.last = ""
        self._numbers: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}

    def claim(self, name: str) -> str:
        """``name`` in letters of XLA, with another number where it is taken; taken from now on."""
        self.last = self._claim(name)
        return self.last

    def _claim(self, name: str) -> str:
        name = _ILLEGAL.sub("_", name)
        match = _NUMBERED.fullmatch(name)
        stem, number = (match[1], int(match[2])) if match else (name, 0)
        numbers = self._numbers.get(stem)
        if numbers is None:
            numbers = self._numbers[stem] = set()
        if number in numbers:
            number = self._next.get(stem, 0)
            while number in numbers:
                number += 1
            self._next[stem] = number + 1
        elif match or number == 0:
            numbers.add(number)
            return name
        numbers.add(number)
        return f"{stem}.{number}" if number or match else stem
