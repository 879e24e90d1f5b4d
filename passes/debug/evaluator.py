"""What runs programs when two are compared: NumPy here; whoever asks may bring another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from graphgen.analysis import inlined
from graphgen.eval import NATIVE, Arithmetic, Array, evaluate_ranks
from graphgen.ir import Function, Module

# Runs a program on all ranks: one mapping of arrays by name a rank, in and out.
Run = Callable[[Module, Function, Sequence[Mapping[str, Array]]], list[dict[str, Array]]]


class Evaluator(Protocol):
    """Runs programs on all ranks, and knows how exactly."""

    def __call__(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """One mapping of arrays by name a rank, in and out; shapes are static."""
        ...

    def noise(self, module: Module) -> float:
        """How far apart, relative to the largest value, two programs that compute the same in the
        same types may come out; 0 where every op is rounded by itself.
        """
        ...


@dataclass(frozen=True, slots=True)
class NumpyEvaluator:
    """All ranks in step in NumPy, op by op.

    Attributes:
        arithmetic: in which floats.
    """

    arithmetic: Arithmetic = NATIVE

    def __call__(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Evaluate."""
        return evaluate_ranks(inlined(module, function), inputs, self.arithmetic, module=module)

    def noise(self, module: Module) -> float:
        """0: the same op on the same numbers gives the same bits."""
        return 0.0
