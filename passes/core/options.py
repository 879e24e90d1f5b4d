"""Options as pipelines write them: ``key=4``, ``key=[1,2]``, by the type of their field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Union, cast, get_args, get_origin, get_type_hints

from graphgen.errors import GraphgenError
from graphgen.numbers import finite, signed_number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# The words an option may be; a function where plugins may add to them.
Choices = Sequence[str] | Callable[[], Sequence[str]]


def choice(default: str, among: Choices) -> str:
    """A field that takes one of a few words."""
    return field(default=default, metadata={"among": among})


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a pass or of a named pipeline.

    Attributes:
        name: of the field.
        kind: its type; a union of int, float, bool, str, None and tuples of one of those.
        default: as text, ``None`` where there is none.
        among: the words it may be, empty for any.
    """

    name: str
    kind: object
    default: str | None
    among: tuple[str, ...]

    @property
    def kind_text(self) -> str:
        """The type as a reader knows it: ``int``, ``[int]``, ``cpu | inf2``."""
        return " | ".join(self.among) or _kind_text(self.kind)

    def read(self, text: str) -> object:
        """The value that ``text`` stands for; :class:`ValueError` where it stands for none."""
        if self.among and text not in self.among:
            raise ValueError(text)
        for kind in _parts(self.kind):
            try:
                return _read(kind, text)
            except ValueError:
                continue
        raise ValueError(text)


def options_of(cls: type[DataclassInstance]) -> Mapping[str, Option]:
    """The options of a dataclass: its fields, without those of metadata ``pipeline=False``."""
    hints = get_type_hints(cls)
    shown = [item for item in fields(cls) if item.metadata.get("pipeline", True)]
    return {item.name: _option(item, hints[item.name]) for item in shown}


def _option(item: Field[object], kind: object) -> Option:
    default = None if item.default is MISSING else format_option(item.default)
    among = cast(Choices, item.metadata.get("among", ()))
    words = tuple(among() if callable(among) else among)
    return Option(item.name, kind, default, words)


def format_option(value: object) -> str:
    """An option value as pipelines write it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ",".join(map(format_option, cast(tuple[object, ...], value))) + "]"
    return str(value)


def write_options(item: DataclassInstance) -> str:
    """The options of an instance that are not at their defaults: ``a=1,b=[2]``."""
    defaults = {field.name: cast(object, field.default) for field in fields(item)}
    values = cast(dict[str, object], vars(item))
    changed = {key: value for key, value in values.items() if value != defaults[key]}
    return ",".join(f"{key}={format_option(value)}" for key, value in changed.items())


def read_options(owner: str, cls: type[DataclassInstance], text: str) -> dict[str, object]:
    """The values in ``key=value,key=[1,2]`` by field name; a dash in a key is an underscore.

    Raises:
        GraphgenError: GG0302 for an unknown option, a value of another kind, one given twice, or
            text that cannot be read.
    """
    known = options_of(cls)
    values: dict[str, object] = {}
    for key, value in _pairs(owner, text):
        option = known.get(key.replace("-", "_"))
        if option is None:
            near = get_close_matches(key, known, n=1)
            help = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
            raise GraphgenError("GG0302", f"{owner} has no option '{key}'", help=help)
        if option.name in values:
            raise GraphgenError("GG0302", f"{owner}: option '{key}' is given twice")
        try:
            values[option.name] = option.read(value)
        except ValueError as error:
            raise _unreadable(owner, option, value) from error
    return values


def _unreadable(owner: str, option: Option, text: str) -> GraphgenError:
    what = f"{owner}: {option.name}={text} is not {option.kind_text}"
    if not option.among:
        return GraphgenError("GG0302", what)
    near = get_close_matches(text, option.among, n=1)
    what = f"{owner}: unknown {option.name} '{text}'"
    help = f"did you mean {near[0]}?" if near else f"known: {', '.join(option.among)}"
    return GraphgenError("GG0302", what, help=help)


_PAIR = re.compile(r"\s*([\w-]+)\s*=\s*(\[[^\]]*\]|[^,\[\]]*?)\s*(?:,|$)")


def _pairs(owner: str, text: str) -> list[tuple[str, str]]:
    """Keys and values of ``key=value,key=[1,2]``; all of the text must be understood."""
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if not match:
            what = f"{owner}: cannot read the options at '{text[at:]}'"
            raise GraphgenError("GG0302", what, help="write key=value,key=[1,2]")
        pairs.append((match[1], match[2]))
        at = match.end()
    return pairs


def _parts(kind: object) -> tuple[object, ...]:
    """The members of a union, in order; anything else alone."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _kind_text(kind: object) -> str:
    names: list[str] = []
    for part in _parts(kind):
        if get_origin(part) is tuple:
            names.append(f"[{_kind_text(get_args(part)[0])}]")
        else:
            names.append("none" if part is NoneType else getattr(part, "__name__", str(part)))
    return " | ".join(names)


def _items(text: str) -> list[str]:
    """Split at commas outside of braces."""
    return re.split(r",(?![^{}]*\})", text)


def _read(kind: object, text: str) -> object:
    if get_origin(kind) is tuple:
        if not (text.startswith("[") and text.endswith("]")):
            raise ValueError(text)
        inner = get_args(kind)[0]
        return tuple(_read(inner, item.strip()) for item in _items(text[1:-1]) if item.strip())
    return _SCALARS[kind](text)


def _word(*words: tuple[str, object]) -> Callable[[str], object]:
    known = dict(words)

    def read(text: str) -> object:
        if text not in known:
            raise ValueError(text)
        return known[text]

    return read


_SCALARS: Mapping[object, Callable[[str], object]] = {
    int: signed_number,
    float: finite,
    str: str,
    bool: _word(("true", True), ("false", False)),
    NoneType: _word(("none", None)),
}
