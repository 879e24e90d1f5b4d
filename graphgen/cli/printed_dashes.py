"""Dashes of printed text in the place of the hyphens of a flag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Text processors put them in place of two hyphens.
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


@dataclass(frozen=True, slots=True)
class DashedFlag:
    """A word of a command line that looks like a flag.

    Attributes:
        word: as given.
        flag: as it has to be typed, with its value if the word has one.
        dash: the first of its dashes that is not a hyphen.
    """

    word: str
    flag: str
    dash: str

    @property
    def what(self) -> str:
        """The fault."""
        return f"'{self.word}' starts with the dash U+{ord(self.dash):04X}, which is not a hyphen"

    @property
    def help(self) -> str:
        """The repair."""
        return f"write {self.flag}: text copied from a page often has such dashes"


def dashed_flag(word: str) -> DashedFlag | None:
    """The flag that a word stands for, if it starts with dashes that are not hyphens."""
    bare = word.lstrip("-" + _DASHES)
    dashes = word[: len(word) - len(bare)]
    found = next((mark for mark in dashes if mark in _DASHES), "")
    return DashedFlag(word, f"--{bare}", found) if found else None
