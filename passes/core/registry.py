"""Passes by name, and passes from text such as ``specialize{context=[128],tokens=[256]}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import TypeVar

from graphgen.errors import GraphgenError
from passes.core.facts import FACTS
from passes.core.pass_ import Pass
from passes.core.plugins import load_all

P = TypeVar("P", bound=Pass)
PASSES: dict[str, type[Pass]] = {}


def register(cls: type[P]) -> type[P]:
    """Enter a pass under its name."""
    assert cls.name not in PASSES, cls.name
    for name in (*cls.requires, *cls.provides, *cls.invalidates):
        assert name in FACTS, f"{cls.name}: there is no fact '{name}'"
    PASSES[cls.name] = cls
    return cls


def all_passes() -> Mapping[str, type[Pass]]:
    """Every pass there is by name, ours and those of installed packages."""
    load_all()
    return PASSES


def parse_pipeline(text: str) -> list[Pass]:
    """Passes from ``name,name{option=value,option=[1,2]}``.

    Raises:
        GraphgenError: GG0301 unknown pass, GG0302 unknown option or bad value; both with the
            nearest names.
    """
    passes: list[Pass] = []
    rest = text.strip()
    while rest:
        match = re.match(r"\s*([\w-]+)(?:\{([^{}]*)\})?\s*(?:,|$)", rest)
        if not match:
            raise GraphgenError(
                "GG0302", f"cannot read the pipeline at '{rest}'", help="write name,name{key=value}"
            )
        passes.append(_make(match[1], match[2] or ""))
        rest = rest[match.end() :]
    return passes


def find_pass(name: str) -> type[Pass]:
    """The pass called ``name``, ours or an installed package's (GG0301 with the nearest names)."""
    if name not in PASSES:
        load_all()
    found = PASSES.get(name)
    if found is None:
        near = get_close_matches(name, PASSES, n=2)
        known = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(PASSES)}"
        raise GraphgenError("GG0301", f"unknown pass '{name}'", help=known)
    return found


def _make(name: str, options: str) -> Pass:
    cls = find_pass(name)
    known_fields = {field.name: field for field in fields(cls)}
    values: dict[str, object] = {}
    for key, value in _pairs(name, options):
        field = known_fields.get(key.replace("-", "_"))
        if field is None:
            names = ", ".join(known_fields) or "none"
            raise GraphgenError("GG0302", f"{name} has no option '{key}'", help=f"it has {names}")
        if field.name in values:
            raise GraphgenError("GG0302", f"{name}: option '{key}' is given twice")
        values[field.name] = _value(name, field.name, str(field.type), value)
    return cls(**values)


_OPTION = re.compile(r"\s*([\w-]+)\s*=\s*(\[[^\]]*\]|[^,\[\]]*?)\s*(?:,|$)")


def _pairs(owner: str, text: str) -> list[tuple[str, str]]:
    """Keys and values of ``key=value,key=[1,2]``; all of the text must be understood."""
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _OPTION.match(text, at)
        if not match:
            what = f"{owner}: cannot read the options at '{text[at:]}'"
            raise GraphgenError("GG0302", what, help="write key=value,key=[1,2]")
        pairs.append((match[1], match[2]))
        at = match.end()
    return pairs


def _value(owner: str, key: str, kind: str, text: str) -> object:
    """An option's value, read as its field's type says."""
    try:
        if kind.startswith("tuple[int") or (kind.startswith("Sizes") and text.startswith("[")):
            return tuple(int(item) for item in text.strip("[]").split(",") if item)
        if kind == "int" or kind.startswith("Sizes"):
            return int(text)
        if kind == "bool":
            return {"true": True, "false": False}[text]
    except (ValueError, KeyError) as error:
        raise GraphgenError("GG0302", f"{owner}: {key}={text} is not {kind}") from error
    return text
