"""Pipelines that have a name: ``default{tp=2}`` stands for the passes it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from graphgen.passes.core.options import write_options
from graphgen.passes.core.pass_ import Pass


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
        """What it stands for."""

    def __str__(self) -> str:
        inner = write_options(self)
        return f"{self.name}{{{inner}}}" if inner else self.name
