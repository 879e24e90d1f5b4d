"""Passes by name, and passes from text such as ``specialize{context=[128],tokens=[256]}``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TypeVar

from graphgen.errors import GraphgenError
from graphgen.passes.core.facts import FACTS
from graphgen.passes.core.named import NamedPipeline, Phase
from graphgen.passes.core.options import read_options
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.plugins import PLUGIN, load_all

P = TypeVar("P", bound=Pass)
N = TypeVar("N", bound=NamedPipeline)
PASSES: dict[str, type[Pass]] = {}
PIPELINES: dict[str, type[NamedPipeline]] = {}


def register(cls: type[P]) -> type[P]:
    """Enter a pass under its name; of two plugins with one name the later holds."""
    known = PASSES.get(cls.name)
    assert known is None or _of_plugin(known), cls.name
    for name in (*cls.requires, *cls.provides, *cls.invalidates):
        assert name in FACTS, f"{cls.name}: there is no fact '{name}'"
    PASSES[cls.name] = cls
    return cls


def _of_plugin(cls: type[Pass]) -> bool:
    return cls.__module__.startswith(PLUGIN)


def register_pipeline(cls: type[N]) -> type[N]:
    """Enter a pipeline under its name."""
    assert cls.name not in PASSES | PIPELINES, cls.name
    PIPELINES[cls.name] = cls
    return cls


def all_passes() -> Mapping[str, type[Pass]]:
    """Every pass there is by name, ours and those of installed packages."""
    load_all()
    return PASSES


def all_pipelines() -> Mapping[str, type[NamedPipeline]]:
    """Every pipeline that has a name, ours and those of installed packages."""
    load_all()
    return PIPELINES


def parse_pipeline(text: str, named: Sequence[NamedPipeline] = ()) -> list[Pass]:
    """Passes from ``name,name{option=value,option=[1,2]}``.

    Args:
        text: names of passes and of pipelines such as ``default``.
        named: pipelines whose options have other defaults here.

    Raises:
        GraphgenError: GG0301 unknown pass, GG0302 unknown option or bad value; both with the
            nearest names.
    """
    return [item for phase in parse_phases(text, named) for item in phase.passes]


def parse_phases(text: str, named: Sequence[NamedPipeline] = ()) -> list[Phase]:
    """The same in phases, those of named pipelines; passes outside of them in phases without name.

    Args:
        text, named: as for :func:`parse_pipeline`.

    Raises:
        GraphgenError: as :func:`parse_pipeline`.
    """
    given = {item.name: item for item in named}
    phases: list[Phase] = []
    rest = text.strip()
    while rest:
        match = re.match(r"\s*([\w-]+)(?:\{((?:[^{}]|\{[^{}]*\})*)\})?\s*(?:,|$)", rest)
        if not match:
            raise GraphgenError(
                "GG0302", f"cannot read the pipeline at '{rest}'", help="write name,name{key=value}"
            )
        phases += _expand(match[1], match[2] or "", given)
        rest = rest[match.end() :]
    return phases


def _expand(name: str, options: str, given: Mapping[str, NamedPipeline]) -> Sequence[Phase]:
    """The pass, or the phases of the pipeline of this name."""
    if name not in PASSES and name not in PIPELINES:
        load_all()
    if name in PIPELINES:
        cls = PIPELINES[name]
        return replace(given.get(name) or cls(), **read_options(name, cls, options)).phases()
    found = find_pass(name)
    return [Phase("", (found(**read_options(name, found, options)),))]


def find_pass(name: str) -> type[Pass]:
    """The pass called ``name``, ours or an installed package's (GG0301 with the nearest names)."""
    if name not in PASSES:
        load_all()
    found = PASSES.get(name)
    if found is None:
        raise _unknown("pass", name, [*PASSES, *PIPELINES])
    return found


def find_pipeline(name: str) -> type[NamedPipeline]:
    """The pipeline called ``name`` (GG0301 with the nearest names)."""
    load_all()
    found = PIPELINES.get(name)
    if found is None:
        raise _unknown("pipeline", name, list(PIPELINES))
    return found


def _unknown(kind: str, name: str, known: Sequence[str]) -> GraphgenError:
    near = get_close_matches(name, known, n=2)
    help = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return GraphgenError("GG0301", f"unknown {kind} '{name}'", help=help)
