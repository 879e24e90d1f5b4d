"""Comparison of both sides of a window on given boundary values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, evaluate_ranks
from graphgen.eval.element_kinds import Number, element
from graphgen.ir import RANK, Dim, Function, Module
from graphgen.ops import OPS
from graphgen.ops.control import CONTROL
from graphgen.passes.core.relation import EQUAL, Partial, Relation, Sharded
from graphgen.passes.equiv.deviation import (
    MEANING_BUDGET,
    Deviation,
    RoundingNoise,
    difference,
)
from graphgen.passes.equiv.relate import RankGrid, meet, steps
from graphgen.passes.validate.narrow_rounding import rounding_of, unit_of
from graphgen.passes.validate.rewrite_window import Pair, WindowCut

# Values of a wrong kind for an op, such as an index outside, make NumPy raise these.
UNFIT = (GraphgenError, ValueError, IndexError, TypeError, KeyError, ArithmeticError)

PerRank = Sequence[Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Differing:
    """The element that differs most between the sides of a window.

    Attributes:
        pair: number of the pair of values.
        index: of the element; the first dimension is the rank where there are several.
        before, after: its values; NaN where the shapes differ.
        relative: the difference over the largest value before, or over the element's own.
        rounding: whether only the rounding differs, not the meaning.
    """

    pair: int
    index: tuple[int, ...]
    before: Number
    after: Number
    relative: float
    rounding: bool = False


@dataclass(frozen=True, slots=True)
class FailedSample:
    """Boundary values on which both sides differ, or cannot be computed.

    Attributes:
        pairs: the values compared.
        window: as it was run, its symbols bound.
        sizes: of the symbols.
        given: per rank its arguments.
        difference: the difference, ``None`` for an error.
        error: the error.
    """

    pairs: tuple[Pair, ...]
    window: Function
    sizes: Mapping[str, Dim]
    given: PerRank
    difference: Differing | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class WindowEvaluator:
    """Evaluates windows of one module.

    Attributes:
        module: has the functions that are called, and the mesh.
        budget: largest relative difference in the program's own types, of windows that do not
            round to narrow numbers.
    """

    module: Module
    budget: float

    def ranks(self, cut: WindowCut) -> int:
        """Number of ranks it takes to evaluate a window."""
        speaks = any(OPS[op.name].collective or op.name in CONTROL for op in cut.ops)
        ranked = any(value.op is None and value.name == RANK for value in cut.boundary)
        related = any(of_ranks(how) for _, _, how in cut.pairs)
        return self.module.ranks if speaks or ranked or related else 1

    def failure(
        self, cut: WindowCut, window: Function, sizes: Mapping[str, Dim], given: PerRank
    ) -> FailedSample | None:
        """The failure of both sides to agree on these values, if they do.

        Args:
            cut: the window.
            window: made of it, with its symbols bound.
            sizes: of the symbols.
            given: per rank its arguments.
        """
        relations = [how for _, _, how in cut.pairs]
        try:
            # Infinities and NaN are compared as well, without a warning.
            with np.errstate(all="ignore"):
                meant = self._met_results(window, relations, given, MEANING)
                found = _differing(meant, MEANING_BUDGET)
                if found is None:
                    native = self._met_results(window, relations, given, NATIVE)
                    exact = [{"": before} for before, _ in meant]
                    noise = RoundingNoise(unit_of(cut.ops), exact)
                    found = _differing(native, self._budget(cut), noise)
        except UNFIT as error:
            return FailedSample(cut.pairs, window, sizes, given, None, str(error))
        if found is None:
            return None
        return FailedSample(cut.pairs, window, sizes, given, found)

    def _budget(self, cut: WindowCut) -> float:
        """The budget of a window: a step of narrow numbers more where one side rounds to them."""
        return self.budget + rounding_of(cut.unshared()) if self.budget else 0.0

    def _met_results(
        self,
        window: Function,
        relations: Sequence[Relation],
        given: PerRank,
        arithmetic: Arithmetic,
    ) -> list[tuple[Array, Array]]:
        """Per pair the values of both sides, as arrays that should be equal."""
        results = evaluate_ranks(window, given, arithmetic, None, self.module)
        return [
            self._met(
                relation,
                [one[f"before.{place}"] for one in results],
                [one[f"after.{place}"] for one in results],
            )
            for place, relation in enumerate(relations)
        ]

    def _met(
        self, relation: Relation, old: Sequence[Array], new: Sequence[Array]
    ) -> tuple[Array, Array]:
        """Two arrays that are equal if the relation holds on every rank."""
        if relation is not EQUAL and of_ranks(relation):
            return meet(relation, old[0], list(new), RankGrid(self.module.mesh))
        alone = RankGrid({})
        met = [meet(relation, a, [b], alone) for a, b in zip(old, new, strict=True)]
        if len(met) == 1:
            return met[0]
        return np.stack([a for a, _ in met]), np.stack([b for _, b in met])


def of_ranks(relation: Relation) -> bool:
    """True if a relation is one between a whole and the parts of ranks."""
    return any(isinstance(step, Sharded | Partial) for step in steps(relation))


def _differing(
    met: Sequence[tuple[Array, Array]], budget: float, noise: RoundingNoise | None = None
) -> Differing | None:
    """The element because of which the first pair differs by more than the budget."""
    for place, (a, b) in enumerate(met):
        unit, exact = (None, None) if noise is None else (noise.unit, noise.of(place, ""))
        found = difference("", 0, a, b, unit, exact)
        if not found.within(budget):
            return differing(place, a, b, found, budget, rounding=noise is not None)
    return None


def differing(
    pair: int, a: Array, b: Array, found: Deviation, budget: float, *, rounding: bool
) -> Differing:
    """The element because of which two arrays differ by more than a budget.

    Args:
        pair: its number.
        a, b: the arrays.
        found: their difference.
        budget: largest difference allowed.
        rounding: whether only the rounding differs.
    """
    if a.shape != b.shape:
        return Differing(pair, (), float("nan"), float("nan"), found.size, rounding)
    at = np.unravel_index(found.place(budget), a.shape) if a.shape else ()
    index = tuple(int(n) for n in at)
    return Differing(pair, index, element(a[index]), element(b[index]), found.size, rounding)
