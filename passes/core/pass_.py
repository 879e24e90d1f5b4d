"""The pass class: a named rewrite of a module whose options are its dataclass fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from graphgen.ir import Module
from graphgen.passes.core.options import write_options
from graphgen.passes.core.relation import OutputChanges
from graphgen.passes.core.rewriter import Rewriter


@dataclass(frozen=True)
class Pass(ABC):
    """A rewrite of a whole module.

    A subclass is a frozen dataclass; its fields are its options. Its docstring shows the module
    text before (``Given:``) and after (``Result:``).

    Attributes:
        name: as written in pipelines, e.g. ``lift-weights``.
        aliases: former names, which pipelines may still be written with.
        input_stages: stages the module may be at.
        output_stage: the stage it is at afterwards, empty when the pass does not change it.
        requires: invariants that must hold before, keys of
            :data:`graphgen.passes.core.invariants.FACTS`.
        provides: invariants that hold afterwards.
        invalidates: invariants that may no longer hold afterwards; it keeps all others.
        rounding: largest difference, relative to the largest value, that the pass may cause when
            everything is computed in the program's own types; 0 for bit for bit. That of a pass
            whose options matter here is :attr:`budget`.
        approximation: what the pass changes in what a model means; empty for a pass that keeps it.
            Its verdict says how far results move, and passes after it are compared with what it
            left.
        approximates: names of the ops whose results the pass approximates. A wrong rewrite of any
            other op fails. Those of a pass whose options matter here are :attr:`approximated`.
        finite_math_only: whether rewrites are right for finite floats only, as under the flag of
            that name of C compilers: ``0 * x`` is 0. Verdicts print it.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded", "target")
    output_stage: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    provides: ClassVar[tuple[str, ...]] = ()
    invalidates: ClassVar[tuple[str, ...]] = ()
    rounding: ClassVar[float] = 0.0
    approximation: ClassVar[str] = ""
    approximates: ClassVar[tuple[str, ...]] = ()
    finite_math_only: ClassVar[bool] = False

    @property
    def budget(self) -> float:
        """The rounding that this pass may cause with the options it has."""
        return self.rounding

    @property
    def approximated(self) -> tuple[str, ...]:
        """The ops whose results this pass approximates with the options it has."""
        return self.approximates

    def output_changes(self) -> OutputChanges | None:
        """The outputs that the pass adds and drops; ``None`` for a pass that keeps them all."""
        return None

    @abstractmethod
    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Rewrite ``module`` in place."""

    def __str__(self) -> str:
        inner = write_options(self)
        return f"{self.name}{{{inner}}}" if inner else self.name
