"""What a pass is: a named rewrite of a module whose options are its dataclass fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, cast

from graphgen.ir import Module
from passes.core.rewriter import Rewriter


@dataclass(frozen=True)
class Pass(ABC):
    """A rewrite of a whole module.

    A subclass is a frozen dataclass; its fields are its options. Its docstring shows the module
    text before (``Given:``) and after (``Result:``).

    Attributes:
        name: as written in pipelines, e.g. ``lift-weights``.
        takes: levels the module may be at.
        gives: the level it is at afterwards, empty when the pass does not change it.
        requires: facts that must hold before, keys of :data:`passes.core.facts.FACTS`.
        provides: facts that hold afterwards.
        invalidates: facts that may no longer hold afterwards; all others it keeps.
        rounding: largest difference, relative to the largest value, that the pass may cause when
            everything is computed in the program's own types; 0 for bit for bit.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded", "target")
    gives: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    provides: ClassVar[tuple[str, ...]] = ()
    invalidates: ClassVar[tuple[str, ...]] = ()
    rounding: ClassVar[float] = 0.0

    @abstractmethod
    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Rewrite ``module`` in place."""

    def __str__(self) -> str:
        fields = {
            key: value
            for key, value in vars(self).items()
            if value != type(self).__dataclass_fields__[key].default
        }
        inner = ",".join(f"{key}={format_option(value)}" for key, value in fields.items())
        return f"{self.name}{{{inner}}}" if inner else self.name


def format_option(value: object) -> str:
    """An option value as pipelines write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ",".join(map(format_option, cast(tuple[object, ...], value))) + "]"
    return str(value)
