"""Pipeline of imported modules: normalization, then composites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.passes.canonical.canonicalize import Canonicalize
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.canonical.inline_calls import InlineCalls
from graphgen.passes.canonical.simplify_shape import SimplifyShape
from graphgen.passes.canonical.unroll_loops import UnrollLoops
from graphgen.passes.core import Pass
from graphgen.passes.core.registry import NamedPipeline, register_pipeline
from graphgen.passes.raising.raise_composites import RaiseComposites


@register_pipeline
@dataclass(frozen=True)
class Imported(NamedPipeline):
    """The pipeline of `graphgen import`: from a traced module to composites.

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
