"""Resharding planner: the cheapest sequence of steps between two layouts (Dijkstra)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from graphgen.ir import Sharding, TensorType, sharding
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.mesh import Mesh, divides, fits, local_shape
from graphgen.passes.sharding.reshard_ops import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    LOCAL,
    MASK,
    PERMUTE,
    REDUCE_SCATTER,
    SLICE,
    ReshardStep,
    bytes_sent,
    local_bytes,
)

# Costs are compared as one integer: bytes moved first, then the number of collectives, then what
# each rank computes and copies. Sums of many costs stay in order, as no part overflows into the
# next: work below 2^80, collectives below 2^24.
_WORK_BITS, _COUNT_BITS = 80, 24
UNREACHABLE = 1 << 200


def pack(moved_bytes: int, collectives: int, work: int) -> int:
    """A cost as one integer."""
    return (moved_bytes << (_WORK_BITS + _COUNT_BITS)) | (collectives << _WORK_BITS) | work


def bytes_of(cost: int) -> int:
    """The bytes moved (times the ranks of the mesh) in a cost."""
    return cost >> (_WORK_BITS + _COUNT_BITS)


@dataclass(frozen=True, slots=True)
class ReshardRoute:
    """Steps in order, and their total cost."""

    steps: tuple[ReshardStep, ...]
    cost: int


_Routes = dict[tuple[TensorType, Sharding, Sharding], ReshardRoute | None]


@lru_cache(maxsize=16)
def _routes(mesh: tuple[tuple[str, int], ...], latency: int, memory: int) -> _Routes:
    """The routes found on a mesh at these costs, which models of a process share."""
    return {}


@dataclass(slots=True)
class ReshardPlanner:
    """Plans reshardings, memoized by type and layouts.

    Attributes:
        mesh: the ranks.
        latency: cost of one collective in bytes, in addition to those it sends.
        memory: bytes of local memory traffic that cost as much as one sent; 0 for infinitely many.
    """

    mesh: Mesh
    latency: int = 0
    memory: int = 0
    _known: _Routes = field(init=False)

    def __post_init__(self) -> None:
        self._known = _routes(self.mesh.key, self.latency, self.memory)

    def find(self, type_: TensorType, source: Sharding, target: Sharding) -> ReshardRoute | None:
        """The cheapest route; ``None`` if there is none."""
        key = (type_, source, target)
        if key not in self._known:
            self._known[key] = self._search(*key)
        return self._known[key]

    def cost(self, type_: TensorType, sources: Iterable[Sharding], target: Sharding) -> int:
        """The least cost from any of ``sources``."""
        least = UNREACHABLE
        for source in sources:
            cost = self._cost(type_, source, target)
            if cost < least:
                least = cost
        return least

    def free(self, cost: int) -> bool:
        """True if a route of this cost has no collective."""
        return not cost >> _WORK_BITS & ((1 << _COUNT_BITS) - 1)

    def best(self, type_: TensorType, sources: Iterable[Sharding], target: Sharding) -> Sharding:
        """The cheapest of ``sources`` to start from."""
        return min(sources, key=lambda source: (self._cost(type_, source, target), source.text))

    def _cost(self, type_: TensorType, source: Sharding, target: Sharding) -> int:
        if source is target:
            return 0
        route = self.find(type_, source, target)
        return UNREACHABLE if route is None else route.cost

    def is_local(self, type_: TensorType, source: Sharding, target: Sharding) -> bool:
        """True if ``target`` is computed from ``source`` without communication.

        Each dimension is cut further, over axes that divide nothing yet, and no sum is taken.
        """
        taken = {*source.axes, *source.partial}
        owed = set(target.partial).difference(source.partial)
        if not owed.isdisjoint(source.axes) or set(source.partial).difference(target.partial):
            return False
        if target.partial and target.kind != (source.kind if source.partial else "add"):
            return False
        for old, new in zip(source.dims, target.dims, strict=True):
            if new[: len(old)] != old or not taken.isdisjoint(new[len(old) :]):
                return False
        return fits(self.mesh, type_, target)

    def price(self, type_: TensorType, step: ReshardStep) -> int:
        """The cost of one step."""
        work = self.labor(local_bytes(self.mesh, type_, step.after))
        if step.kind in LOCAL:
            return work
        latency = self.latency * self.mesh.ranks
        return work + pack(bytes_sent(self.mesh, type_, step) + latency, 1, 0)

    def labor(self, work: int) -> int:
        """The cost of local work, in bytes of memory traffic per rank."""
        as_bytes = work * self.mesh.ranks // self.memory if self.memory else 0
        return pack(as_bytes, 0, work)

    def inside(self, sent: int, collectives: int) -> int:
        """The cost of ``collectives`` inside of an op, which send ``sent`` bytes over all ranks."""
        return pack(sent + collectives * self.latency * self.mesh.ranks, collectives, 0)

    def _search(self, type_: TensorType, source: Sharding, target: Sharding) -> ReshardRoute | None:
        """Dijkstra over layouts."""
        if source.partial and target.partial and source.kind != target.kind:
            return None
        order = itertools.count()
        heap: list[tuple[int, int, Sharding, tuple[ReshardStep, ...]]] = [
            (0, next(order), source, ())
        ]
        done: set[Sharding] = set()
        while heap:
            cost, _, layout, steps = heapq.heappop(heap)
            if layout is target:
                return ReshardRoute(steps, cost)
            if layout in done:
                continue
            done.add(layout)
            for step in self.steps(type_, layout, target):
                if step.after not in done:
                    price = cost + self.price(type_, step)
                    heapq.heappush(heap, (price, next(order), step.after, (*steps, step)))
        return None

    def steps(self, type_: TensorType, layout: Sharding, target: Sharding) -> Iterator[ReshardStep]:
        """Yield every step that can be on a cheapest route from ``layout`` to ``target``."""
        yield from self._slices(type_, layout, target)
        yield from self._joins(type_, layout, target)
        yield from self._sums(type_, layout, target)
        yield from self._permutes(type_, layout, target)

    def _slices(
        self, type_: TensorType, layout: Sharding, target: Sharding
    ) -> Iterator[ReshardStep]:
        free = set(self.mesh.axes).difference(layout.axes, layout.partial)
        shape = local_shape(self.mesh, type_, layout)
        for dim, (old, new) in enumerate(zip(layout.dims, target.dims, strict=True)):
            added = tuple(axis for axis in new if axis in free)
            for count in range(1, len(added) + 1):
                cut = added[:count]
                if divides(shape[dim], self.mesh.size(cut)):
                    after = _with(layout, {dim: (*old, *cut)})
                    yield ReshardStep(SLICE, layout, after, cut, dim)
        unreduced = tuple(axis for axis in target.partial if axis in free)
        if unreduced and target.kind == "add":
            after = sharding(layout.dims, (*layout.partial, *unreduced))
            yield ReshardStep(MASK, layout, after, unreduced)

    def _joins(
        self, type_: TensorType, layout: Sharding, target: Sharding
    ) -> Iterator[ReshardStep]:
        shape = local_shape(self.mesh, type_, layout)
        target_axes = [set(axes) for axes in target.dims]
        for dim, axes in enumerate(layout.dims):
            # Axes that block others may move to any dimension: they are gathered again after the
            # others have sharded this one.
            in_the_way = not target_axes[dim].issubset({*layout.axes, *layout.partial})
            for kept in range(len(axes)):
                rest, taken = axes[:kept], axes[kept:]
                yield ReshardStep(ALL_GATHER, layout, _with(layout, {dim: rest}), taken, dim)
                for other, present in enumerate(layout.dims):
                    wanted = in_the_way or target_axes[other].issuperset(taken)
                    if other == dim or not wanted:
                        continue
                    if not divides(shape[other], self.mesh.size(taken)):
                        continue
                    after = _with(layout, {dim: rest, other: (*present, *taken)})
                    yield ReshardStep(ALL_TO_ALL, layout, after, taken, dim, other)

    def _sums(self, type_: TensorType, layout: Sharding, target: Sharding) -> Iterator[ReshardStep]:
        if not layout.partial:
            return
        shape = local_shape(self.mesh, type_, layout)
        due = [axis for axis in layout.partial if axis not in target.partial]
        for count in range(1, len(due) + 1):
            for axes in itertools.combinations(due, count):
                rest = tuple(axis for axis in layout.partial if axis not in axes)
                after = sharding(layout.dims, rest, layout.kind)
                yield ReshardStep(ALL_REDUCE, layout, after, self.mesh.ordered(axes))
                for dim, present in enumerate(layout.dims):
                    cut = tuple(axis for axis in target.dims[dim] if axis in axes)
                    if len(cut) < len(axes) or not divides(shape[dim], self.mesh.size(cut)):
                        continue
                    scattered = _with(after, {dim: (*present, *cut)})
                    yield ReshardStep(REDUCE_SCATTER, layout, scattered, cut, dim)

    def _permutes(
        self, type_: TensorType, layout: Sharding, target: Sharding
    ) -> Iterator[ReshardStep]:
        shape = local_shape(self.mesh, type_, layout)
        for after in self._rearranged(layout, target):
            if after is layout or not fits(self.mesh, type_, after):
                continue
            if local_shape(self.mesh, type_, after) == shape:
                yield ReshardStep(PERMUTE, layout, after, self.mesh.ordered(layout.axes))

    def _rearranged(self, layout: Sharding, target: Sharding) -> Iterator[Sharding]:
        """Yield the target, and the layout with the axes of one dimension permuted."""
        if target.partial == layout.partial:
            yield target
        for dim, axes in enumerate(layout.dims):
            if len(axes) > 1:
                for order in itertools.permutations(axes):
                    yield _with(layout, {dim: order})


def _with(layout: Sharding, changes: dict[int, Axes]) -> Sharding:
    """The layout with other cuts of some dimensions."""
    dims = [changes.get(dim, axes) for dim, axes in enumerate(layout.dims)]
    return sharding(dims, layout.partial, layout.kind)
