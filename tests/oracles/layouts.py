"""The cheapest way to divide a small program, by trying all of them.

Every op is divided in every way it can be, every value brought into every set of layouts its
readers may want, one step at a time. The only thing shared with the product is what a single op and
a single step are; how they are combined is not.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from graphgen.ir import Function, Module, Op, Sharding, TensorType, Value, replicated
from graphgen.passes.sharding.mesh import Mesh
from graphgen.passes.sharding.reshard_ops import LOCAL, ReshardStep, bytes_sent
from graphgen.passes.sharding.reshard_planner import ReshardPlanner
from graphgen.passes.sharding.strategies import Strategy, strategies

FAR = 1 << 60


def sent(module: Module, function: Function, latency: int) -> int:
    """Bytes each rank sends in a program, times the ranks, plus ``latency`` for each collective."""
    total = 0
    for op in function.block:
        if "replica_groups" in op.attrs:
            parts = len(op.attrs.groups("replica_groups")[0])
            size = op.operands[0].type.nbytes * module.ranks
            share = {
                "all_gather": size * (parts - 1),
                "all_reduce": 2 * size * (parts - 1) // parts,
            }.get(op.name, size * (parts - 1) // parts)
            total += share + latency * module.ranks
        elif op.name == "collective_permute":
            total += (op.operands[0].type.nbytes + latency) * module.ranks
    return total


@dataclass
class Exhaustive:
    """Searches one program.

    Attributes:
        module: with layouts on its interface and values.
        latency: bytes that a collective counts as, beside those it moves.
        best: only programs that send less are looked for; afterwards what the best of them sends.
    """

    module: Module
    latency: int
    best: int = FAR
    mesh: Mesh = field(init=False)
    _covers: dict[tuple[TensorType, frozenset[Sharding], frozenset[Sharding]], int] = field(
        default_factory=dict
    )
    _nexts: dict[tuple[TensorType, Sharding], list[tuple[Sharding, int]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.mesh = Mesh(self.module.mesh)
        (self.function,) = self.module.programs()
        self.ops = list(self.function.block)
        self.ways = {op: strategies(op, self.mesh) for op in self.ops}
        self.last = {v: i for i, op in enumerate(self.ops) for v in op.operands}
        self.leaves: dict[Value, set[Sharding]] = {}
        for name, value in self.function.outputs:
            self.leaves.setdefault(value, set()).add(self._asked(name))

    def _asked(self, name: str) -> Sharding:
        row = self.module.interface[name]
        return row.sharding or replicated(row.logical.rank)

    def run(self) -> int:
        """The least that every rank sends."""
        base = 0
        for value in self.function.args:
            if value not in self.last:
                start = frozenset((self._asked(value.name or ""),))
                base += self.cover(value.type, start, frozenset(self.leaves.get(value, ())))
        self._choose(0, {}, base)
        return self.best

    def _choose(self, index: int, chosen: dict[Op, Strategy], cost: int) -> None:
        if cost >= self.best:
            return
        if index == len(self.ops):
            self.best = cost
            return
        op = self.ops[index]
        for strategy in self.ways[op]:
            chosen[op] = strategy
            done = [v for v in dict.fromkeys(op.operands) if self.last[v] == index]
            done += [v for v in op.results if v not in self.last]
            extra = sum(self._value(v, chosen) for v in done)
            self._choose(index + 1, chosen, cost + extra)
        del chosen[op]

    def _value(self, value: Value, chosen: dict[Op, Strategy]) -> int:
        """The cost of bringing a value to all who read it."""
        wanted = set(self.leaves.get(value, ()))
        for op in value.users:
            for operand, layout in zip(op.operands, chosen[op].in_shardings, strict=True):
                if operand is value:
                    wanted.add(layout)
        if value.op is None:
            return self.cover(
                value.type, frozenset((self._asked(value.name or ""),)), frozenset(wanted)
            )
        given = chosen[value.op].out_shardings[value.index]
        if value.sharding is None:
            return self.cover(value.type, frozenset((given,)), frozenset(wanted))
        # Said to lie in one way: brought there first, and nothing else is left of it.
        pinned = frozenset((value.sharding,))
        return self.cover(value.type, frozenset((given,)), pinned) + self.cover(
            value.type, pinned, frozenset(wanted)
        )

    def cover(
        self, type_: TensorType, there: frozenset[Sharding], wanted: frozenset[Sharding]
    ) -> int:
        """The least that is sent until a value is there in all wanted layouts."""
        key = (type_, there, wanted)
        if key not in self._covers:
            self._covers[key] = self._cover(*key)
        return self._covers[key]

    def _cover(
        self, type_: TensorType, there: frozenset[Sharding], wanted: frozenset[Sharding]
    ) -> int:
        """Sets of layouts in the order of what it costs to have them."""
        order = itertools.count()
        heap = [(0, next(order), self._with_free(type_, there))]
        done: set[frozenset[Sharding]] = set()
        while heap:
            cost, _, now = heapq.heappop(heap)
            if wanted <= now:
                return cost
            if now in done:
                continue
            done.add(now)
            for layout in now:
                for after, price in self._next(type_, layout):
                    if after not in now:
                        grown = self._with_free(type_, now | {after})
                        heapq.heappush(heap, (cost + price, next(order), grown))
        return FAR

    def _with_free(self, type_: TensorType, there: Iterable[Sharding]) -> frozenset[Sharding]:
        """With everything a rank gets on its own."""
        found = set(there)
        work = list(found)
        while work:
            for after, price in self._next(type_, work.pop()):
                if not price and after not in found:
                    found.add(after)
                    work.append(after)
        return frozenset(found)

    def _next(self, type_: TensorType, layout: Sharding) -> list[tuple[Sharding, int]]:
        """Every layout one step away, with what the step sends."""
        key = (type_, layout)
        if key not in self._nexts:
            found: dict[Sharding, int] = {}
            routes = ReshardPlanner(self.mesh)
            for target in self._layouts(type_):
                if layout.partial and target.partial and layout.kind != target.kind:
                    continue
                for step in routes.steps(type_, layout, target):
                    found[step.after] = min(found.get(step.after, FAR), self._price(type_, step))
            self._nexts[key] = sorted(found.items(), key=lambda item: item[1])
        return self._nexts[key]

    def _price(self, type_: TensorType, step: ReshardStep) -> int:
        if step.kind in LOCAL:
            return 0
        return bytes_sent(self.mesh, type_, step) + self.latency * self.mesh.ranks

    def _layouts(self, type_: TensorType) -> set[Sharding]:
        """Every layout that some op can read or give, or somebody asked for."""
        found = {self._asked(name) for name, row in self.module.interface.items()
                 if row.logical is type_}  # fmt: skip
        for op, ways in self.ways.items():
            for strategy in ways:
                values, layouts = (
                    [*op.operands, *op.results],
                    [*strategy.in_shardings, *strategy.out_shardings],
                )
                pairs = zip(values, layouts, strict=True)
                found |= {layout for value, layout in pairs if value.type is type_}
            found |= {v.sharding for v in op.results if v.sharding and v.type is type_}
        return found
