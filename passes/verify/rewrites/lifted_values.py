"""Compare values lifted into parameters by a rewrite with the outputs of weight programs.

Those functions are complete only at the end of the pass, so the value before is cut out of the
program when the rewrite is made, and compared then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, evaluate_ranks, rank_index
from graphgen.exec.weights import prepare_weights
from graphgen.ir import RANK, Function, Module, Role
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.verify.compare.deviation import MEANING_BUDGET, difference
from graphgen.passes.verify.rewrites.boundary_values import redrawn_floats
from graphgen.passes.verify.rewrites.rewrite_window import Pair, WindowCut
from graphgen.passes.verify.rewrites.window_check import UNFIT, FailedSample, differing

_EVERYTHING = 1 << 30


@dataclass(frozen=True, slots=True)
class LiftedValue:
    """A value that is a parameter after a rewrite.

    Attributes:
        pair: the value, the parameter, and their relation.
        window: computes the value from arguments of the program.
        names: of these arguments.
        param: the name of the parameter.
        key: equal for the same computation of the same arguments.
    """

    pair: Pair
    window: Function
    names: tuple[str, ...]
    param: str
    key: tuple[object, ...]


def is_lifted(pair: Pair, module: Module) -> bool:
    """True if the value after is a parameter that is prepared from weights."""
    _, new, relation = pair
    row = module.interface.get(new.name or "")
    prepared = row is not None and row.role in (Role.PARAM, Role.SLOTTED)
    return new.op is None and prepared and relation == EQUAL


def cut_lifted(pair: Pair) -> LiftedValue:
    """Cut the value before out of the program as it is now."""
    old, new, _ = pair
    cut = WindowCut(((old, old, EQUAL),), {}, set() if old.op is None else {old.op})
    cut.settle()
    cut.widen(_EVERYTHING)
    names = tuple([value.name or "" for value in cut.boundary])
    return LiftedValue(pair, cut.function({}), names, new.name or "", (new.name, names, cut.key()))


@dataclass(slots=True)
class LiftedValues:
    """Compares lifted values with what is prepared.

    Attributes:
        module: after the pass.
        weights: checkpoint tensors by name.
        budget: of rounding.
    """

    module: Module
    weights: Mapping[str, Array]
    budget: float
    _given: dict[tuple[bool, bool], list[dict[str, Array]]] = field(
        default_factory=dict[tuple[bool, bool], list[dict[str, Array]]]
    )

    def failure(self, lifted: LiftedValue) -> FailedSample | None:
        """The difference of a value and its parameter, or why they cannot be compared."""
        return self._compared(lifted, drawn=False)

    def drawn_failure(self, lifted: LiftedValue) -> FailedSample | None:
        """The same for weights with zeros, ties and numbers far from 1."""
        return self._compared(lifted, drawn=True)

    def _compared(self, lifted: LiftedValue, *, drawn: bool) -> FailedSample | None:
        for arithmetic, budget in ((MEANING, MEANING_BUDGET), (NATIVE, self.budget)):
            try:
                found = self._failure(lifted, arithmetic, budget, drawn=drawn)
            except UNFIT as error:
                return FailedSample((lifted.pair,), lifted.window, {}, (), None, str(error))
            if found is not None:
                return found
        return None

    def _failure(
        self, lifted: LiftedValue, arithmetic: Arithmetic, budget: float, *, drawn: bool
    ) -> FailedSample | None:
        whole = self._arrays(arithmetic, drawn=drawn)
        given = [
            {f"{place}.{name}": one[name] for place, name in enumerate(lifted.names)}
            for one in whole
        ]
        results = evaluate_ranks(lifted.window, given, arithmetic, module=self.module)
        before = np.stack([result["before.0"] for result in results])
        after = np.stack([one[lifted.param] for one in whole])
        gap = difference("", 0, before, after).relative
        if gap <= budget:
            return None
        worst = differing(0, before, after, gap, arithmetic is NATIVE)
        return FailedSample((lifted.pair,), lifted.window, {}, given, worst)

    def _arrays(self, arithmetic: Arithmetic, *, drawn: bool) -> list[dict[str, Array]]:
        """Per rank weights and parameters."""
        key = arithmetic is NATIVE, drawn
        if key not in self._given:
            ranks = self.module.ranks
            weights = redrawn_floats(self.weights) if drawn else self.weights
            made = prepare_weights(self.module, weights, ranks, arithmetic)
            self._given[key] = [
                {**weights, **one, RANK: rank_index(rank)} for rank, one in enumerate(made)
            ]
        return self._given[key]
