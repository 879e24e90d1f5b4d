"""Patterns of modules' names from files, matched in time that is linear in the name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, Protocol, cast

# Characters of a pattern, and bytes of the automaton that it becomes.
_LONGEST: Final = 1 << 16
_MOST_BYTES: Final = 8 << 20
# Look-around has no automaton: such patterns have few repetitions, and names few characters.
_MOST_REPEATS: Final = 2
_LONGEST_NAME: Final = 1024
_PART: Final = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)


class NameMatch(Protocol):
    """A match."""

    def __getitem__(self, group: int) -> str:
        """The text of a group; 0 for all."""
        ...


class NamePattern(Protocol):
    """A compiled pattern."""

    def match(self, text: str) -> NameMatch | None:
        """The match at the beginning of a name."""
        ...

    def fullmatch(self, text: str) -> NameMatch | None:
        """The match of a whole name."""
        ...


class _PlainPattern:
    """A pattern of Python's engine with few repetitions, for names that models have."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def match(self, text: str) -> NameMatch | None:
        """The match at the beginning of a name."""
        found = self._pattern.match(text) if len(text) <= _LONGEST_NAME else None
        return cast("NameMatch | None", found)

    def fullmatch(self, text: str) -> NameMatch | None:
        """The match of a whole name."""
        found = self._pattern.fullmatch(text) if len(text) <= _LONGEST_NAME else None
        return cast("NameMatch | None", found)


@lru_cache(maxsize=4096)
def name_pattern(pattern: str) -> NamePattern:
    """Compile a pattern of a file.

    Python's own engine tries all ways to match, in time that may double with each character: RE2
    does not. It has no look-around; patterns with it are taken if they have at most two repetitions
    and none of a group.

    Raises:
        ValueError: it is not a pattern, is too large, or might backtrack; the text says why.
    """
    # Only here: a run without adapters needs no patterns.
    import re2  # pyright: ignore[reportMissingTypeStubs]

    if len(pattern) > _LONGEST:
        raise ValueError(f"it has {len(pattern)} characters, and at most {_LONGEST} are read")
    engine = cast(Any, re2)
    options = engine.Options()
    options.log_errors = False
    options.max_mem = _MOST_BYTES
    try:
        return cast(NamePattern, engine.compile(pattern, options))
    except UnicodeEncodeError as error:
        raise ValueError(str(error)) from error
    except engine.error as error:
        reason: object = error.args[0] if error.args else b""
        if not _is_plain(pattern):
            text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise ValueError(text) from error
    try:
        return _PlainPattern(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _is_plain(pattern: str) -> bool:
    """True for a pattern with look-around and few repetitions, none of a group."""
    # Without escapes and classes of characters.
    bare = _PART.sub("x", pattern)
    if re.search(r"\)[*+{]|\(\?P[=>]", bare) or re.search(r"\\[1-9]", pattern):
        return False
    looks = re.search(r"\(\?<?[=!]", bare) is not None
    return looks and len(re.findall(r"[*+{]", bare)) <= _MOST_REPEATS
