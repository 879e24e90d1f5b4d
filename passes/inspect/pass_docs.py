"""Split the docstring of a pass or pipeline into the parts of its page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from inspect import getdoc

_HEAD = re.compile(r"^(Options|Given|Result)(?: \((.*)\))?:$")
_OPTION = re.compile(r"^([\w, ]+): +(.*)$")


@dataclass(frozen=True, slots=True)
class Page:
    """A docstring in parts.

    Attributes:
        text: what it does, the first line being a summary.
        options: what each option says, by name.
        given, result: a module before and after, as IR text; empty without an example.
        how: the passes that make the one of the other, as the docstring writes them.
    """

    text: str
    options: Mapping[str, str]
    given: str = ""
    result: str = ""
    how: str = ""

    @property
    def summary(self) -> str:
        """The first line."""
        return self.text.partition("\n")[0]

    @property
    def passes(self) -> list[str]:
        """Pipelines named in double backquotes after ``Result``."""
        return re.findall(r"``(.*?)``", self.how)


def page_of(cls: type) -> Page:
    """The page of a class, from its docstring."""
    sections: dict[str, list[str]] = {"": []}
    current, how = "", ""
    for line in (getdoc(cls) or "").splitlines():
        head = _HEAD.match(line)
        if head:
            current = head[1]
            how = head[2] or how
            sections[current] = []
        else:
            sections[current].append(line)
    parts = {name: _dedent(lines) for name, lines in sections.items()}
    options = {**_field_help(cls), **_options(parts.get("Options", ""))}
    return Page(parts[""], options, parts.get("Given", ""), parts.get("Result", ""), how)


def _field_help(cls: type) -> Mapping[str, str]:
    """Help texts of the fields that pipelines take, from their metadata."""
    found = fields(cls) if is_dataclass(cls) else ()
    return {
        item.name: item.metadata["help"]
        for item in found
        if "help" in item.metadata and item.metadata.get("pipeline", True)
    }


def _dedent(lines: list[str]) -> str:
    from textwrap import dedent

    return dedent("\n".join(lines)).strip("\n")


def _options(text: str) -> Mapping[str, str]:
    """``name: what it says`` by name; what goes on is indented, names may share a line."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        match = _OPTION.match(line)
        if match and not line.startswith(" "):
            names = [name.strip() for name in match[1].split(",")]
            found.update(dict.fromkeys(names, match[2]))
        else:
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
    return found
