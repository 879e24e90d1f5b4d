"""What a module that was read from elsewhere goes through to become one of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from passes.canonical.canonicalize import Canonicalize
from passes.cleanup.cse import CommonSubexpressions
from passes.cleanup.dce import DeadCodeElimination
from passes.cleanup.simplify_shape import SimplifyShape
from passes.core import Pass
from passes.core.named import NamedPipeline
from passes.core.registry import register_pipeline
from passes.outline import InlineCalls, UnrollLoops
from passes.raising.raise_composites import RaiseComposites


@register_pipeline
@dataclass(frozen=True)
class Imported(NamedPipeline):
    """From a module that was traced elsewhere to composites; what `graphgen import` runs.

    Options:
        sharded: of a program that is one rank's already, with its collectives.
    """

    name: ClassVar[str] = "imported"
    sharded: bool = False

    def passes(self) -> list[Pass]:
        """The passes."""
        return [
            UnrollLoops(),
            InlineCalls(),
            *(() if self.sharded else (Canonicalize(),)),
            SimplifyShape(),
            CommonSubexpressions(),
            RaiseComposites(),
            CommonSubexpressions(),
            DeadCodeElimination(),
        ]
