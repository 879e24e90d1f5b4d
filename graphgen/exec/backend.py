"""Execution backends: the protocol, and NumPy; compiled ones are handed in from above."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from graphgen.analysis import inlined
from graphgen.eval import NATIVE, Arithmetic, Array, Observer, evaluate_ranks
from graphgen.ir import Function, Module

# Per rank, arrays by name.
RankArrays = Sequence[Mapping[str, Array]]


# (module, function, arguments per rank) -> outputs per rank, by name in physical types.
RunOnRanks = Callable[[Module, Function, RankArrays], list[dict[str, Array]]]


class Backend(Protocol):
    """Runs programs on all ranks."""

    def __call__(
        self, module: Module, function: Function, inputs: RankArrays
    ) -> list[dict[str, Array]]:
        """Run ``function`` of ``module``, whose shapes are static.

        Args:
            module: has the functions it calls.
            function: the program.
            inputs: per rank, arguments by name in physical types.

        Returns:
            Per rank, outputs by name in physical types.
        """
        ...

    def noise(self, module: Module) -> float:
        """Largest difference, relative to the largest value, of two programs that compute the same
        in the same types; 0 where every op is rounded by itself.
        """
        ...


@dataclass(frozen=True, slots=True)
class NumpyBackend:
    """All ranks in step in NumPy, op by op.

    Attributes:
        arithmetic: element types of floats.
        observer: sees every op that runs, and may replace its results.
    """

    arithmetic: Arithmetic = NATIVE
    observer: Observer | None = None

    def __call__(
        self,
        module: Module,
        function: Function,
        inputs: RankArrays,
        donated: Container[str] = (),
    ) -> list[dict[str, Array]]:
        """Evaluate; arrays of ``donated`` arguments may be written."""
        whole = inlined(module, function)
        return evaluate_ranks(
            whole,
            inputs,
            self.arithmetic,
            module=module,
            observer=self.observer,
            donated=donated,
        )

    def noise(self, module: Module) -> float:
        """0: the same op on the same numbers gives the same bits."""
        return 0.0
