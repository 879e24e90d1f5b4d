"""Named pipelines: ``default{tp=2}`` expands to the passes of its phases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from graphgen.passes.core.options import write_options
from graphgen.passes.core.pass_ import Pass


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
    """A list of passes that depends on a few options.

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
