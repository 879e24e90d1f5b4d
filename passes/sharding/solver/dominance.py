"""Which of many states to go on from: those that a cheaper one does not make up for.

A state makes up for another where it costs less even after bringing every value into the layouts
that it is there in, in the other. The other can be on a cheapest way only where several readers
share such a layout, so states are only compared where there are too many to go on from all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.ir import Sharding, TensorType
from graphgen.passes.sharding.reshard.reshard_planner import UNREACHABLE, ReshardPlanner

# The layouts a value is there in: those that the others cannot be cut from.
Present = frozenset[Sharding]
# A live value: its type, and whether it is made of weights alone, which are not to be sent about.
Live = tuple[TensorType, bool]
State = tuple[Present, ...]
# With how many of the cheapest states the others are compared.
_LEADERS = 4


@dataclass(slots=True)
class Dominance:
    """Compares states by what it costs to make up for being in one instead of another.

    Attributes:
        routes: costs of changing layouts.
    """

    planner: ReshardPlanner
    _known: dict[tuple[Live, Present, Present], int] = field(
        default_factory=dict[tuple[Live, Present, Present], int]
    )

    def best(
        self, states: Sequence[State], costs: Sequence[int], live: Sequence[Live], most: int
    ) -> list[int]:
        """The places of the states to go on from, in order: all, where they are not too many.

        Args:
            states: of the same values.
            costs: of each.
            live: the values.
            most: how many may go on.
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
                self._makes_up(states[leader], states[place], less, live)
                for leader, less in zip(found, saved, strict=False)
            ):
                found.append(place)
        return found

    def _makes_up(self, mine: State, other: State, saved: int, live: Sequence[Live]) -> bool:
        """Whether ``mine``, cheaper by ``saved``, is better than ``other`` after all."""
        for value, there, wanted in zip(live, mine, other, strict=True):
            if saved <= 0:
                return False
            if there is not wanted:
                saved -= self.price(value, there, wanted)
        return saved > 0

    def price(self, value: Live, there: Present, wanted: Present) -> int:
        """What it costs at most to do with one set of layouts what could be done with another."""
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
