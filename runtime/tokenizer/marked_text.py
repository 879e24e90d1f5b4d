"""Marked texts of messages: a template writes their marks, and reads the texts without them.

The process that renders templates reads this file, too, without the rest of the package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsIndex, cast


class Marks(NamedTuple):
    """Marks of the texts of messages.

    Args:
        firsts: a pattern of the first characters of special tokens.
        mark: the mark, a character that no message has.
    """

    firsts: str
    mark: str


def marked_messages(
    messages: Sequence[Mapping[str, object]], marks: Marks
) -> list[dict[str, object]]:
    """The messages with texts that are written marked, all but their roles."""
    return [
        {name: value if name == "role" else marked_value(value, marks) for name, value in m.items()}
        for m in messages
    ]


def marked_value(value: object, marks: Marks) -> object:
    """A value of JSON with texts that are written marked; names are where they begin tokens."""
    firsts = re.compile(marks.firsts)
    marked = partial(marked_text, firsts=firsts, mark=marks.mark)

    def made(inner: object) -> object:
        if isinstance(inner, str):
            return MessageText(inner, marked)
        if isinstance(inner, Mapping):
            entries = cast("Mapping[str, object]", inner).items()
            return {made(k) if firsts.search(k) else k: made(v) for k, v in entries}
        if isinstance(inner, list | tuple):
            return [made(one) for one in cast("Sequence[object]", inner)]
        return inner

    return made(value)


def marked_text(text: str, firsts: re.Pattern[str], mark: str) -> str:
    """A text in which no special token begins, ends, or goes on.

    Args:
        text: of a message.
        firsts: the first characters of special tokens.
        mark: comes twice after each of them, and once around the text without white space at its
            ends.
    """
    inside = firsts.sub(lambda found: f"{found[0]}{mark}{mark}", text)
    kept = inside.strip()
    if not kept:
        return inside
    before, after = inside.split(kept, 1)
    return f"{before}{mark}{kept}{mark}{after}"


class MessageText(str):  # noqa: SLOT000
    """The text of a message in a template, which reads it as it is and writes it marked.

    Its characters are the marked ones: what is not overridden, such as joining texts, writes marks.

    Args:
        text: as it is.
        marked: marks a text.
    """

    _text: str
    _marked: Callable[[str], str]

    def __new__(cls, text: str, marked: Callable[[str], str]) -> MessageText:
        """Make the text."""
        made = super().__new__(cls, marked(text))
        made._text, made._marked = text, marked
        return made

    def __contains__(self, key: object) -> bool:
        """True if the text as it is has the other one."""
        return _as_is(key) in self._text  # pyright: ignore[reportOperatorIssue]

    def __eq__(self, other: object) -> bool:
        """True for a text with the same characters as this one as it is."""
        return self._text == _as_is(other)

    def __hash__(self) -> int:
        """Hash of the text as it is."""
        return hash(self._text)

    def __len__(self) -> int:
        """Number of characters of the text as it is."""
        return len(self._text)

    def __getitem__(self, key: SupportsIndex | slice[Any, Any, Any]) -> MessageText:
        """Some of its characters."""
        return MessageText(self._text[key], self._marked)

    def __iter__(self) -> Iterator[MessageText]:
        """Its characters."""
        return (MessageText(char, self._marked) for char in self._text)


def _as_is(value: object) -> object:
    return value._text if isinstance(value, MessageText) else value  # pyright: ignore[reportPrivateUsage]


def _delegated(name: str) -> Callable[..., object]:
    """A method of strings for the text as it is, whose results are of the message, too."""

    def method(self: MessageText, *arguments: object, **named: object) -> object:
        own = getattr(self._text, name)  # pyright: ignore[reportPrivateUsage]
        made = own(*map(_as_is, arguments), **named)
        return _owned(made, self._marked)  # pyright: ignore[reportPrivateUsage]

    return method


def _owned(made: object, marked: Callable[[str], str]) -> object:
    if isinstance(made, str):
        return MessageText(made, marked)
    if isinstance(made, list | tuple):
        parts = [MessageText(part, marked) for part in cast("Sequence[str]", made)]
        return parts if isinstance(made, list) else tuple(parts)
    return made


# All that looks at a text or cuts it; ``format`` and ``join`` write.
for _name in (
    *("capitalize", "casefold", "lower", "swapcase", "title", "upper", "expandtabs"),
    *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace", "translate"),
    *("split", "rsplit", "splitlines", "partition", "rpartition", "center", "ljust", "rjust"),
    *("startswith", "endswith", "find", "rfind", "index", "rindex", "count", "zfill"),
    *(name for name in dir(str) if name.startswith("is")),
):
    setattr(MessageText, _name, _delegated(_name))
