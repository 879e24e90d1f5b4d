"""The command line of one program: layers of options merged by rule, each with its origin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphgen.lowering.neuronx_cc.option_text import CompilerOption, read_options, text_of, words_of

_PREFIXES = ("--enable-", "--disable-")


@dataclass(frozen=True, slots=True)
class OptionLayer:
    """Options that one place gives.

    Attributes:
        origin: the place, in words.
        text: the options as on the command line.
    """

    origin: str
    text: str


@dataclass(frozen=True, slots=True)
class PlacedOption:
    """An option of a command line.

    Attributes:
        option: the option.
        origin: the layer that it is from.
        replaced: what earlier layers gave in its place, as text and origin.
    """

    option: CompilerOption
    origin: str
    replaced: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The option alone, as on the command line."""
        return text_of(self.option.words())


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The options of one compilation, without input and output."""

    options: tuple[PlacedOption, ...]

    @property
    def words(self) -> list[str]:
        """As the compiler is given them."""
        return words_of([item.option for item in self.options])

    @property
    def text(self) -> str:
        """As a shell takes them."""
        return text_of(self.words)


def merge(layers: Iterable[OptionLayer]) -> CommandLine:
    """Merge layers of options; a later layer has the last word about an option, never more.

    An option replaces that of the same name, in the same list, whatever its spelling, and
    ``--enable-X`` replaces ``--disable-X``. All others stay: a layer cannot drop an option by
    leaving it out. The option keeps the values it replaced.

    Raises:
        GraphgenError: GG0705 for a layer that is not a list of options.
    """
    placed: dict[tuple[str, str], PlacedOption] = {}
    for layer in layers:
        for option in read_options(layer.text):
            key = (option.inside, _subject(option.name))
            placed[key] = _placed(option, layer.origin, placed.get(key))
    return CommandLine(tuple(placed.values()))


def _subject(name: str) -> str:
    """The name; one for an option and its opposite."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return f"--enable-{name.removeprefix(prefix)}"
    return name


def _placed(option: CompilerOption, origin: str, before: PlacedOption | None) -> PlacedOption:
    if before is None:
        return PlacedOption(option, origin)
    if before.option == option:
        # Given twice: its origin is the first layer.
        return before
    return PlacedOption(option, origin, (*before.replaced, (before.text, before.origin)))


def missing(command: CommandLine, options: Sequence[CompilerOption]) -> list[PlacedOption]:
    """The options of ``command`` that another list of options has not, by subject."""
    subjects = {(option.inside, _subject(option.name)) for option in options}
    return [
        item
        for item in command.options
        if (item.option.inside, _subject(item.option.name)) not in subjects
    ]
