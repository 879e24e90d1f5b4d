"""Beam search for the cheapest sharding of a program; exact while the states fit in ``beam``.

Dynamic programming over the ops in order: a state is the set of layouts in which each live value is
available, and the table keeps the least cost per state. Above ``beam`` states, dominated states are
pruned, then the most expensive; above :data:`CROWD`, only the cheapest strategies of an op are
enumerated. Costs are ordered as
:func:`graphgen.passes.sharding.reshard_planner.pack` says:
bytes moved, then collectives, then work.

Layers repeat, so transitions are memoized by table and node: equal layers are searched once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter

from graphgen.config.option_words import EXCHANGE_AUTO
from graphgen.ir import Op, Sharding, TensorType, replicated, sharding
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.expert_exchange import exchange_strategies, split_tokens
from graphgen.passes.sharding.joined_axes import splits_apart, uses_together
from graphgen.passes.sharding.mesh import Mesh
from graphgen.passes.sharding.reshard_planner import UNREACHABLE, ReshardPlanner, pack
from graphgen.passes.sharding.ring_layout import ring_axes
from graphgen.passes.sharding.strategies import Strategy, ring_strategy, strategies

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


# The place of a replicated value: it is available in any layout at no cost.
FREE = -1
# The place of a replicated value that must not be sharded: a weight with conflicting users.
RIGID = -2
# Penalty for resharding a weight, which would store it twice: only without an alternative.
_SECOND_COPY = pack(1 << 60, 0, 0)
# Above CROWD states, limits on the strategies and options enumerated per state.
CROWD, MOST_STRATEGIES, MOST_OPTIONS = 64, 16, 20
# Layouts to reshard a value to, in order.
Targets = tuple[Sharding, ...]


@dataclass(frozen=True, slots=True)
class OpSharding:
    """The sharding of one op in a plan.

    Attributes:
        strategy: the shardings of operands and results.
        acquired: per operand, the layouts it is resharded to before the op; the last one is used.
        delivered: per result, the layouts it is resharded to after the op.
    """

    strategy: Strategy
    acquired: tuple[Targets, ...]
    delivered: tuple[Targets, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SearchNode:
    """One op, or one argument with its layout, as seen by the search.

    Nodes are interned by :meth:`ShardingSearch.node` and :meth:`ShardingSearch.source`.

    Attributes:
        types: of the operands.
        result_types: of the results.
        strategies: of the op.
        places: per operand, its index among the live values, or :data:`FREE` or :data:`RIGID`.
        pins: per result, the annotated layout, if any.
        outputs: per result, the layouts in which the program returns it.
        weights: per operand, true if it derives from weights alone.
        last: per operand, true if no other operand and no later op reads the value.
    """

    types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    strategies: tuple[Strategy, ...]
    places: tuple[int, ...]
    pins: tuple[Sharding | None, ...]
    outputs: tuple[Targets, ...]
    weights: tuple[bool, ...] = ()
    last: tuple[bool, ...] = ()

    @property
    def live(self) -> tuple[Live, ...]:
        """The live values among the operands, ordered by place, then the results."""
        known = dict(zip(self.places, zip(self.types, self.weights, strict=True), strict=True))
        used = [known[place] for place in sorted(known) if place >= 0]
        return (*used, *[(type_, False) for type_ in self.result_types])


@dataclass(frozen=True, slots=True)
class _Option:
    """One choice in one state: its cost, and the layouts of live operands and results."""

    cost: int
    there: State
    choice: OpSharding


# Layouts of live operands and results, with the targets of operands and of results.
_Way = tuple[State, tuple[Targets, ...], tuple[Targets, ...]]


# Cost of resharding results, their layouts then, and the targets of each.
_Ending = tuple[int, tuple[Present, ...], tuple[Targets, ...]]


def _picking(places: Sequence[int]) -> Callable[[State], State]:
    """A function that picks the layouts at some places of a state."""
    if len(places) > 1:
        return itemgetter(*places)
    # An itemgetter of one place gives no tuple.
    return lambda state: tuple([state[place] for place in places])


@dataclass(frozen=True, slots=True, eq=False)
class StateTable:
    """States with their costs relative to the cheapest."""

    states: tuple[State, ...]
    costs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transition:
    """From one table to the next: per new state, its predecessor and the choice."""

    table: StateTable
    back: tuple[tuple[int, OpSharding], ...]


class _Memo:
    """Results of searches with the same mesh, costs and joined axes.

    Keys hold everything else that a result depends on, so that modules can share one memo.
    """

    def __init__(self, dominance: Dominance) -> None:
        self.dominance = dominance
        self.strategies: dict[tuple[object, ...], tuple[Strategy, ...]] = {}
        self.options: dict[tuple[object, ...], tuple[_Option, ...]] = {}
        self.acquired: dict[tuple[object, ...], tuple[tuple[int, Present, Targets], ...]] = {}
        self.endings: dict[tuple[SearchNode, int], Sequence[_Ending]] = {}
        self.transitions: dict[tuple[object, ...], Transition] = {}
        self.nodes: dict[tuple[object, ...], SearchNode] = {}
        self.tables: dict[tuple[tuple[State, ...], tuple[int, ...]], StateTable] = {}


@lru_cache(maxsize=16)
def _shared_memo(
    mesh: tuple[tuple[str, int], ...],
    latency: int,
    memory: int,
    beam: int,
    exchange: str,
    joined: Axes,
    slots: Axes,
) -> _Memo:
    """The memo of these searches, which models of a process share."""
    return _Memo(Dominance(ReshardPlanner(Mesh(dict(mesh)), latency, memory)))


@dataclass(slots=True)
class ShardingSearch:
    """The search over programs, with memoized transitions.

    Attributes:
        mesh: the ranks.
        planner: costs of resharding.
        beam: the maximal number of states between two ops.
        joined: axes that ops other than mixtures of experts, and those ``around``, use together.
        around: ops around attention, where caches are split along their slots.
        divided: attention whose slots are divided over these axes, whatever it costs.
        slots: the axes that split caches so.
        exchange: how tokens get to experts of other ranks, of ``EXPERT_EXCHANGES``.
    """

    mesh: Mesh
    planner: ReshardPlanner
    beam: int
    joined: Axes = ()
    around: Set[Op] = frozenset()
    divided: Set[Op] = frozenset()
    slots: Axes = ()
    exchange: str = EXCHANGE_AUTO

    _memo: _Memo = field(init=False)

    def __post_init__(self) -> None:
        self.limit(self.slots, self.around, self.divided, self.joined)

    def limit(self, slots: Axes, around: Set[Op], divided: Set[Op], joined: Axes) -> None:
        """Set the limits of the ops of a module, as the attributes of these names say."""
        self.slots, self.around, self.divided, self.joined = slots, around, divided, joined
        costs = self.planner.latency, self.planner.memory
        self._memo = _shared_memo(self.mesh.key, *costs, self.beam, self.exchange, joined, slots)

    def strategies(self, op: Op) -> tuple[Strategy, ...]:
        """All strategies of an op, memoized."""
        key = (op.name, op.attrs, tuple([value.type for value in op.operands]), self._limits(op))
        found = self._memo.strategies.get(key)
        if found is None:
            ring = ring_strategy(op, self.mesh)
            found = (ring,) if ring is not None else strategies(op, self.mesh, self.slots)
            found = exchange_strategies(op, self.mesh, found, self.exchange)
            apart, divided, _ = self._limits(op)
            if not apart:
                found = tuple([way for way in found if uses_together(way, self.joined)])
            if divided:
                found = tuple([way for way in found if way.special == self.slots]) or found
            self._memo.strategies[key] = found
        return found

    def _limits(self, op: Op) -> tuple[bool, bool, tuple[object, ...]]:
        """Limits of an op: it may use a joined axis alone, must divide slots, has split tokens."""
        split = (op.operands[0].sharding,) if ring_axes(op) or split_tokens(op) else ()
        return not self.joined or op in self.around or splits_apart(op), op in self.divided, split

    def node(
        self,
        op: Op,
        places: tuple[int, ...],
        pins: tuple[Sharding | None, ...],
        outputs: tuple[Targets, ...],
        weights: tuple[bool, ...],
        last: tuple[bool, ...],
    ) -> SearchNode:
        """The interned node of an op."""
        types = tuple([value.type for value in op.operands])
        key = (op.name, op.attrs, types, self._limits(op), places, pins, outputs, weights, last)
        found = self._memo.nodes.get(key)
        if found is None:
            given = tuple([value.type for value in op.results])
            ways = self.strategies(op)
            found = self._memo.nodes[key] = SearchNode(
                types, given, ways, places, pins, outputs, weights, last
            )
        return found

    def source(self, type_: TensorType, layout: Sharding, outputs: Targets) -> SearchNode:
        """The interned node of an argument with its layout, returned in ``outputs``."""
        key = (type_, layout, outputs)
        found = self._memo.nodes.get(key)
        if found is None:
            there = (Strategy((), (layout,)),)
            found = self._memo.nodes[key] = SearchNode((), (type_,), there, (), (None,), (outputs,))
        return found

    def start(self) -> StateTable:
        """The initial table: no live values."""
        return self._table([()], [0])

    def _table(self, states: Sequence[State], costs: Sequence[int]) -> StateTable:
        least = min(costs)
        key = (tuple(states), tuple(cost - least for cost in costs))
        found = self._memo.tables.get(key)
        if found is None:
            found = self._memo.tables[key] = StateTable(*key)
        return found

    def advance(
        self, table: StateTable, node: SearchNode, kept: tuple[int, ...], live: tuple[Live, ...]
    ) -> Transition:
        """The transition over one op, memoized.

        Args:
            table: the states before the op.
            node: the op.
            kept: indices of live values and results that are live after the op.
            live: types of these values.
        """
        key = (table, node, kept, live)
        found = self._memo.transitions.get(key)
        if found is None:
            found = self._memo.transitions[key] = self._advance(table, node, kept, live)
        return found

    def _advance(
        self, table: StateTable, node: SearchNode, kept: tuple[int, ...], live: tuple[Live, ...]
    ) -> Transition:
        best: dict[State, tuple[int, int, OpSharding]] = {}
        used = sorted({place for place in node.places if place >= 0})
        # After an option, a used value has the layouts of the option, any other its previous ones.
        number = len(table.states[0])
        at = {place: number + index for index, place in enumerate(used)}
        crowded = len(table.states) > CROWD
        moved = _picking([at.get(p, p + len(used) * (p >= number)) for p in kept])
        read = _picking(used)
        for index, (state, cost) in enumerate(zip(table.states, table.costs, strict=True)):
            for option in self._from(node, read(state), crowded):
                reached = moved(state + option.there)
                total = cost + option.cost
                known = best.get(reached)
                if known is None or total < known[0]:
                    best[reached] = (total, index, option.choice)
        return self._narrowed(best, live)

    def _narrowed(
        self, best: dict[State, tuple[int, int, OpSharding]], live: tuple[Live, ...]
    ) -> Transition:
        """The transition to the best ``beam`` states."""
        items = list(best.items())
        costs = [cost for cost, _, _ in best.values()]
        places = self._memo.dominance.best(list(best), costs, live, self.beam)
        items = [items[place] for place in places]
        table = self._table([state for state, _ in items], [cost for _, (cost, _, _) in items])
        return Transition(table, tuple([(index, choice) for _, (_, index, choice) in items]))

    def _from(self, node: SearchNode, present: State, crowded: bool) -> tuple[_Option, ...]:
        """The options at a node with its live operands in these layouts, memoized."""
        key = (node, present, crowded)
        found = self._memo.options.get(key)
        if found is None:
            found = self._memo.options[key] = tuple(self._all_options(node, present, crowded))
        return found

    def _all_options(self, node: SearchNode, present: State, crowded: bool) -> list[_Option]:
        best: dict[State, tuple[int, Strategy, _Way]] = {}
        ways = self._promising(node, present) if crowded else node.strategies
        used = sorted({place for place in node.places if place >= 0})
        at = {place: index for index, place in enumerate(used)}
        for strategy in ways:
            for cost, way in self._with(node, present, strategy, at):
                known = best.get(way[0])
                if known is None or cost < known[0]:
                    best[way[0]] = (cost, strategy, way)
        costs = [cost for cost, _, _ in best.values()]
        most = MOST_OPTIONS if crowded else len(costs)
        places = self._memo.dominance.best(list(best), costs, node.live, most)
        found = list(best.values())
        return [
            _Option(cost, there, OpSharding(strategy, done, left))
            for cost, strategy, (there, done, left) in [found[place] for place in places]
        ]

    def _promising(self, node: SearchNode, present: State) -> Sequence[Strategy]:
        """The cheapest strategies of a node, in their original order."""
        ways = node.strategies
        if len(ways) <= MOST_STRATEGIES:
            return ways
        there = dict(zip(sorted({p for p in node.places if p >= 0}), present, strict=True))
        operands = [
            (type_, there.get(place) or (replicated(type_.rank),))
            for type_, place in zip(node.types, node.places, strict=True)
        ]
        costs = [
            self._own_cost(way)
            + sum(
                [self.planner.cost(*o, w) for o, w in zip(operands, way.in_shardings, strict=True)]
            )
            for way in ways
        ]
        order = sorted(range(len(ways)), key=costs.__getitem__)[:MOST_STRATEGIES]
        return [ways[place] for place in sorted(order)]

    def _own_cost(self, strategy: Strategy) -> int:
        """The cost of the op itself: its work, and the collectives inside of it."""
        labor = self.planner.labor(strategy.work)
        if strategy.requested:
            return labor
        return labor + self.planner.inside(strategy.sent, strategy.collectives)

    def _with(
        self,
        node: SearchNode,
        present: tuple[Present, ...],
        strategy: Strategy,
        at: Mapping[int, int],
    ) -> list[tuple[int, _Way]]:
        """The options of one strategy: reshardings of operands times reshardings of results.

        Args:
            node: the op.
            present: layouts of its live operands.
            strategy: one of the node's.
            at: place of a live operand -> its index in ``present``.
        """
        # Cost, layouts of the live operands, targets of the operands so far.
        partial: list[tuple[int, tuple[Present, ...], tuple[Targets, ...]]] = [
            (self._own_cost(strategy), present, ())
        ]
        for type_, place, weight, last, want in zip(
            node.types, node.places, node.weights, node.last, strategy.in_shardings, strict=True
        ):
            grown: list[tuple[int, tuple[Present, ...], tuple[Targets, ...]]] = []
            for cost, there, done in partial:
                if place in (FREE, RIGID):
                    if place == RIGID and not want.replicated:
                        continue
                    price = self.planner.cost(type_, (replicated(type_.rank),), want)
                    if price < UNREACHABLE:
                        grown.append((cost + price, there, (*done, (want,))))
                    continue
                index = at[place]
                ways = self.acquired(type_, there[index], want)
                if last and ways:
                    # Nothing shares a layout that a longer way would leave.
                    price, _, targets = min(ways, key=itemgetter(0))
                    ways = ((price, there[index], targets),)
                for price, now, targets in ways:
                    if weight and not self.planner.free(price):
                        price += _SECOND_COPY
                    changed = (*there[:index], now, *there[index + 1 :])
                    grown.append((cost + price, changed, (*done, targets)))
            partial = grown
        ends = self._ends(node, strategy) if partial else ()
        return [
            (cost + price, (there + results, done, left))
            for cost, there, done in partial
            for price, results, left in ends
        ]

    def _ends(self, node: SearchNode, strategy: Strategy) -> Sequence[_Ending]:
        """Reshardings of the results, memoized: they do not depend on the operands' layouts."""
        # Strategies are kept by their node, so that no other one gets the number of one.
        key = (node, id(strategy))
        found = self._memo.endings.get(key)
        if found is None:
            found = self._memo.endings[key] = self._left(node, strategy)
        return found

    def _left(self, node: SearchNode, strategy: Strategy) -> list[_Ending]:
        """Reshardings of the results to their pins and to the layouts of program outputs."""
        ways: list[_Ending] = [(0, (), ())]
        for type_, given, pin, outputs in zip(
            node.result_types, strategy.out_shardings, node.pins, node.outputs, strict=True
        ):
            cost = 0 if pin is None else self.planner.cost(type_, (given,), pin)
            first: tuple[Targets, int, Present] = (
                ((), 0, frozenset((given,))) if pin is None else ((pin,), cost, frozenset((pin,)))
            )
            branches = [first]
            for output in outputs:
                branches = [
                    ((*targets, *more), price + extra, now)
                    for targets, price, there in branches
                    for extra, now, more in self.acquired(type_, there, output)
                ]
            ways = [
                (total + price, (*results, there), (*left, targets))
                for total, results, left in ways
                for targets, price, there in branches
                if price < UNREACHABLE
            ]
        return ways

    def acquired(
        self, type_: TensorType, present: Present, want: Sharding
    ) -> tuple[tuple[int, Present, Targets], ...]:
        """Ways to reshard a value: directly, or through a layout that other users may share."""
        key = (type_, present, want)
        found = self._memo.acquired.get(key)
        if found is None:
            found = self._memo.acquired[key] = tuple(self._acquire(type_, present, want))
        return found

    def _acquire(
        self, type_: TensorType, present: Present, want: Sharding
    ) -> list[tuple[int, Present, Targets]]:
        direct = self.planner.cost(type_, present, want)
        if direct >= UNREACHABLE:
            return []
        ways: list[tuple[int, Present, Targets]] = [
            (direct, self.kept(type_, (*present, want)), (want,))
        ]
        if self.planner.free(direct):
            return ways
        for middle in self._gathered(present):
            first = self.planner.cost(type_, present, middle)
            second = self.planner.cost(type_, (*present, middle), want)
            if middle is not want and first + second < UNREACHABLE:
                kept = self.kept(type_, (*present, middle, want))
                ways.append((first + second, kept, (middle, want)))
        return ways

    def _gathered(self, present: Present) -> list[Sharding]:
        """The present layouts with some axes gathered or reduced."""
        found: dict[Sharding, None] = {}
        for layout in sorted(present, key=lambda item: item.text):
            axes = (*layout.axes, *layout.partial)
            for chosen in range(1, 1 << len(axes)):
                gone = {axis for bit, axis in enumerate(axes) if chosen >> bit & 1}
                dims = [tuple(a for a in cut if a not in gone) for cut in layout.dims]
                unreduced = [axis for axis in layout.partial if axis not in gone]
                found[sharding(dims, unreduced, layout.kind)] = None
        return [layout for layout in found if layout not in present]

    def kept(self, type_: TensorType, layouts: Sequence[Sharding]) -> Present:
        """The layouts that are not local slices of another one in the list."""
        unique = list(dict.fromkeys(layouts))
        return frozenset(
            layout
            for layout in unique
            if not any(
                other is not layout and self.planner.is_local(type_, other, layout)
                for other in unique
            )
        )
