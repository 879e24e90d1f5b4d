"""Options of ``neuronx-cc`` as text and as words: read, written, and named by one spelling."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError

# Options whose value is a list of options.
LISTS = (
    "--tensorizer-options",
    "--internal-hlo2tensorizer-options",
    "--internal-backend-options",
)
# Other spellings of an option (the compiler's reference gives three for logical cores).
_SPELLINGS = {"--logical-nc-config": "--lnc", "-lnc": "--lnc"}
_LEVEL = "-O"


@dataclass(frozen=True, slots=True)
class CompilerOption:
    """One option as it was given.

    Attributes:
        name: with its dashes, ``-O`` of ``-O1``.
        values: the words of its value; none for a switch.
        inside: the option whose list holds it; empty for one of the command line itself.
    """

    name: str
    values: tuple[str, ...] = ()
    inside: str = ""

    @property
    def value(self) -> str:
        """The value as one text; empty for a switch."""
        return " ".join(self.values)

    def words(self) -> list[str]:
        """The words of a command line: ``-O1``, ``--a``, ``--a=1``, and ``--a 1 2``."""
        if self.name == _LEVEL:
            return [f"{_LEVEL}{self.value}"]
        if len(self.values) == 1:
            return [f"{self.name}={self.value}"]
        return [self.name, *self.values]


def read_options(text: str) -> list[CompilerOption]:
    """The options of a text such as ``-O1 --lnc 2 --tensorizer-options='--a --b=1'``.

    Those of a list stand for themselves, with the name of the list.

    Raises:
        GraphgenError: GG0705 for a text that is not a list of options.
    """
    found: list[CompilerOption] = []
    for option in _options(text):
        if option.name in LISTS:
            found += [
                CompilerOption(item.name, item.values, option.name)
                for item in _options(option.value)
            ]
        else:
            found.append(option)
    return found


def _options(text: str) -> Iterator[CompilerOption]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _unreadable(text, str(error)) from error
    name, values = "", list[str]()
    for word in words:
        # A list that is one word, `--tensorizer-options '--a --b'`, is a value, as for argparse.
        listed = name in LISTS and not values and " " in word
        if listed or not word.startswith("-"):
            if not name:
                raise _unreadable(text, f"'{word}' follows no option")
            values.append(word)
            continue
        if name:
            yield CompilerOption(name, tuple(values))
        name, values = _named(word)
    if name:
        yield CompilerOption(name, tuple(values))


def _named(word: str) -> tuple[str, list[str]]:
    """The name and the value that one word gives."""
    name, _, value = word.partition("=")
    if name.startswith(_LEVEL) and len(name) > len(_LEVEL):
        name, value = _LEVEL, name[len(_LEVEL) :]
    return _SPELLINGS.get(name, name), [value] if value else []


def _unreadable(text: str, why: str) -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"compiler arguments {text!r} cannot be read: {why}",
        help="write them as on the command line of neuronx-cc",
    )


def words_of(options: Sequence[CompilerOption]) -> list[str]:
    """The words of a command line; options of one list become one word, where the first stood."""
    inner: dict[str, list[str]] = {}
    for option in options:
        if option.inside:
            inner.setdefault(option.inside, []).extend(option.words())
    made: list[str] = []
    for option in options:
        if not option.inside:
            made += option.words()
        elif option.inside in inner:
            made.append(f"{option.inside}={shlex.join(inner.pop(option.inside))}")
    return made


def text_of(words: Sequence[str]) -> str:
    """The words as a shell takes them, ``--list='--a --b'``."""
    made: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if name in LISTS and "'" not in value:
            made.append(f"{name}='{value}'")
        else:
            made.append(f"{name}={shlex.quote(value)}" if equals else shlex.quote(word))
    return " ".join(made)
