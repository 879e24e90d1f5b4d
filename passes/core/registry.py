"""Registry of passes and pipelines; parser of ``specialize{context=[128],tokens=[256]}``.

Passes of plugins come from a Python file or from the entry points of installed packages.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import ClassVar, TypeVar

from graphgen.errors import GraphgenError, did_you_mean
from graphgen.passes.core.invariants import FACTS
from graphgen.passes.core.options import read_options, write_options
from graphgen.passes.core.pass_ import Pass

GROUP = "graphgen.passes"
# Prefix of the names of modules loaded from files of the user.
PLUGIN = "graphgen_plugin_"
# Files that have been run; a reproducer lists them.
LOADED: list[Path] = []


@dataclass(frozen=True, slots=True)
class Phase:
    """Consecutive passes of a pipeline with one purpose.

    Attributes:
        name: as ``--stop-after`` takes it; empty for passes outside of phases.
        passes: in order; empty if the options leave the phase out.
    """

    name: str
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class NamedPipeline(ABC):
    """A named list of passes, a function of a few options.

    A subclass is a frozen dataclass; its fields are its options, its docstring is its page.

    Attributes:
        name: as written in pipelines.
    """

    name: ClassVar[str]

    @abstractmethod
    def passes(self) -> list[Pass]:
        """The passes, for these options."""

    def phases(self) -> tuple[Phase, ...]:
        """The passes in phases; one without a name unless a subclass has a table."""
        return (Phase("", tuple(self.passes())),)

    def __str__(self) -> str:
        inner = write_options(self)
        return f"{self.name}{{{inner}}}" if inner else self.name


P = TypeVar("P", bound=Pass)
N = TypeVar("N", bound=NamedPipeline)
PASSES: dict[str, type[Pass]] = {}
# Former names of passes, which pipelines may still be written with.
ALIASES: dict[str, str] = {}
PIPELINES: dict[str, type[NamedPipeline]] = {}


def register(cls: type[P]) -> type[P]:
    """Enter a pass under its name; of two plugins with one name the later holds."""
    known = PASSES.get(cls.name)
    assert known is None or _of_plugin(known), cls.name
    for name in (*cls.requires, *cls.provides, *cls.invalidates):
        assert name in FACTS, f"{cls.name}: there is no fact '{name}'"
    PASSES[cls.name] = cls
    ALIASES.update(dict.fromkeys(cls.aliases, cls.name))
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
    """All named pipelines, built in or from installed packages."""
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
    if name not in PASSES and name not in PIPELINES and name not in ALIASES:
        load_all()
    if name in PIPELINES:
        cls = PIPELINES[name]
        return replace(given.get(name) or cls(), **read_options(name, cls, options)).phases()
    found = find_pass(name)
    return [Phase("", (found(**read_options(name, found, options)),))]


def find_pass(name: str) -> type[Pass]:
    """The pass called ``name``, ours or an installed package's (GG0301 with the nearest names)."""
    if name not in PASSES and name not in ALIASES:
        load_all()
    found = PASSES.get(name) or PASSES.get(ALIASES.get(name, ""))
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
    help = did_you_mean(name, known) or f"known: {', '.join(known)}"
    return GraphgenError("GG0301", f"unknown {kind} '{name}'", help=help)


def load_file(path: str) -> ModuleType:
    """Run a Python file that registers passes; it may import the modules beside it.

    Returns:
        The module that the file is.

    Raises:
        GraphgenError: GG0705 when the file is not there or fails, with its own error.
    """
    file = Path(path)
    name = f"{PLUGIN}{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file) if file.is_file() else None
    if spec is None or spec.loader is None:
        raise GraphgenError("GG0705", f"the plugin '{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[name] = module
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        # Last: a file beside the plugin hides no installed module.
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GraphgenError(
            "GG0705", f"the plugin '{path}' fails: {type(error).__name__}: {error}"
        ) from error
    LOADED.append(file.resolve())
    return module


def load_all() -> None:
    """Import every pass of ours, and the entry points ``graphgen.passes`` of installed packages."""
    package = import_module("graphgen.passes")
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(found.name)
    for point in entry_points(group=GROUP):
        point.load()
