"""Options as pipelines write them: ``key=4``, ``key=[1,2]``, by the types of their fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, cast

from graphgen.config.fields import TypedField, fields_of, parse_field, unknown_name
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def options_of(cls: type[DataclassInstance]) -> Mapping[str, TypedField[object]]:
    """The options of a dataclass: its fields, without those declared with ``pipeline=False``."""
    found = fields_of(cls).items()
    return {name: item for name, item in found if item.extra.get("pipeline", True)}


def default_text(item: TypedField[object]) -> str | None:
    """The default of an option as pipelines write it; ``None`` where it has none."""
    return None if item.default is MISSING else format_option(item.default)


def format_option(value: object) -> str:
    """An option value as pipelines write it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ",".join(map(format_option, cast(tuple[object, ...], value))) + "]"
    return str(value)


def write_options(item: DataclassInstance) -> str:
    """The options of an instance that are not at their defaults: ``a=1,b=[2]``."""
    options = {field.name: cast(object, field.default) for field in fields(item) if field.compare}
    values = {name: cast(object, getattr(item, name)) for name in options}
    changed = {key: value for key, value in values.items() if value != options[key]}
    return ",".join(f"{key}={format_option(value)}" for key, value in changed.items())


def read_options(owner: str, cls: type[DataclassInstance], text: str) -> dict[str, object]:
    """The values in ``key=value,key=[1,2]`` by field name; a dash in a key is an underscore.

    Raises:
        GraphgenError: GG0302 for an unknown option, a value of another type, one given twice, or
            text that cannot be read.
    """
    known = options_of(cls)
    values: dict[str, object] = {}
    for key, value in _pairs(owner, text):
        option = known.get(key.replace("-", "_"))
        if option is None:
            raise unknown_name(owner, "option", key, known, "GG0302")
        if option.name in values:
            raise GraphgenError("GG0302", f"{owner}: option '{key}' is given twice")
        values[option.name] = parse_field(owner, option, value, "GG0302")
    return values


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
