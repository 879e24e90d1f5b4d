"""Prune dominated search states.

State A dominates B if ``cost(A) + cost of resharding A's values to B's layouts <= cost(B)``. B may
still be on an optimal path if several users share such a layout, so states are pruned only above
the beam width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.ir import Sharding, TensorType
from graphgen.passes.sharding.reshard.reshard_planner import UNREACHABLE, ReshardPlanner

# The layouts in which a value is available, without local slices of another one.
Present = frozenset[Sharding]
# A live value: its type, and true if it derives from weights alone, which are not resharded.
Live = tuple[TensorType, bool]
State = tuple[Present, ...]
# The number of cheapest states that others are compared with.
_LEADERS = 4


@dataclass(slots=True)
class Dominance:
    """Compares states by cost difference and resharding cost.

    Attributes:
        planner: costs of resharding.
    """

    planner: ReshardPlanner
    _known: dict[tuple[Live, Present, Present], int] = field(
        default_factory=dict[tuple[Live, Present, Present], int]
    )

    def best(
        self, states: Sequence[State], costs: Sequence[int], live: Sequence[Live], most: int
    ) -> list[int]:
        """The indices of the states to keep, cheapest first; all in order if at most ``most``.

        Args:
            states: of the same live values.
            costs: per state.
            live: the values.
            most: the maximal number to keep.
        """
        if len(states) <= most:
            return list(range(len(states)))
        order = sorted(range(len(states)), key=costs.__getitem__)
        found: list[int] = []
        for place in order:
            if len(found) == most:
                break
            saved = [costs[place] - costs[leader] for leader in found[:_LEADERS]]
            if not any(
                self._dominates(states[leader], states[place], less, live)
                for leader, less in zip(found, saved, strict=False)
            ):
                found.append(place)
        return found

    def _dominates(self, mine: State, other: State, saved: int, live: Sequence[Live]) -> bool:
        """True if ``mine``, cheaper by ``saved``, dominates ``other``."""
        for value, there, wanted in zip(live, mine, other, strict=True):
            if saved <= 0:
                return False
            if there is not wanted:
                saved -= self.price(value, there, wanted)
        return saved > 0

    def price(self, value: Live, there: Present, wanted: Present) -> int:
        """An upper bound on the cost of resharding a value from ``there`` to all of ``wanted``."""
        key = (value, there, wanted)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._price(*key)
        return found

    def _price(self, value: Live, there: Present, wanted: Present) -> int:
        missing = wanted - there
        if not missing:
            return 0
        type_, weight = value
        total = 0
        for layout in missing:
            cost = self.planner.cost(type_, there, layout)
            if weight and not self.planner.free(cost):
                return UNREACHABLE
            total += cost
        return min(total, UNREACHABLE)
