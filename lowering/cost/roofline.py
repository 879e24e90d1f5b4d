"""The roofline of a program: compute, memory and links, layer by layer; nothing is fitted.

``seconds = max(arithmetic, memory) + collectives`` per layer. Memory traffic is the least that has
to cross: arguments (weights, caches, inputs) as far as they are read, updates of caches, and
operands and results of collectives larger than the core's own memory. Between two collectives rows
can be computed in tiles, so intermediate values (attention's scores, for example) need not cross.
So the sum is a lower bound of what a compiler can reach on this device with this program, not a
prediction. A loop costs its trip count if known, else one iteration; a conditional costs its most
expensive branch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, prod

from graphgen.analysis.calls import inlined
from graphgen.analysis.collective_traffic import (
    Groups,
    LevelTraffic,
    flat_traffic,
    groups_of,
    level_traffic,
    traffic_seconds,
)
from graphgen.analysis.layers import layers_of
from graphgen.analysis.loops import ops_run
from graphgen.analysis.work import memory_owner, work_of
from graphgen.ir import Function, Module, Op, Value
from graphgen.ops import OPS, Trait, has_trait, op_def
from graphgen.targets import Accelerator

# The matrix unit's tile and the vector unit's rows and columns, for counting instructions.
_TILE = (128, 128, 512)
_PARTITIONS, _COLUMNS = 128, 512
# Ops of the matrix unit.
MATRIX_OPS = ("dot_general", "convolution")


@dataclass(frozen=True, slots=True)
class RooflineCost:
    """Seconds and bytes of some ops on one core.

    Attributes:
        flops: operations of the matrix unit, and all others.
        matrix_s, vector_s: seconds of arithmetic in either unit at its peak rate.
        bytes: that cross to device memory.
        memory_s: seconds they take.
        link_bytes: that each chip sends to others of its node in collectives.
        link_s: seconds of collectives, with a step's latency.
        instructions: tiles of products and of elementwise work: how many the compiler has to emit
            at least. The number that it does emit follows no public formula.
        node_bytes: that each node sends to others in collectives.
    """

    flops: int = 0
    matrix_s: float = 0.0
    vector_s: float = 0.0
    bytes: int = 0
    memory_s: float = 0.0
    link_bytes: int = 0
    link_s: float = 0.0
    instructions: int = 0
    node_bytes: int = 0

    def __add__(self, other: RooflineCost) -> RooflineCost:
        return RooflineCost(*[getattr(self, n) + getattr(other, n) for n in self.__slots__])

    def times(self, count: int) -> RooflineCost:
        """The cost of ``count`` runs of the same ops."""
        if count == 1:
            return self
        return RooflineCost(*[getattr(self, name) * count for name in self.__slots__])

    @property
    def compute_s(self) -> float:
        """The two units work side by side."""
        return max(self.matrix_s, self.vector_s)

    @property
    def seconds(self) -> float:
        """The slower of arithmetic and memory, and the collectives."""
        return max(self.compute_s, self.memory_s) + self.link_s

    @property
    def bound(self) -> str:
        """The resource that takes longest: ``compute``, ``memory`` or ``link``."""
        times = {"compute": self.compute_s, "memory": self.memory_s, "link": self.link_s}
        return max(times, key=times.__getitem__)


@dataclass(frozen=True, slots=True)
class Group:
    """Neighboring layers of one cost, or everything outside of layers.

    Attributes:
        first, last: their names; empty outside of layers.
        count: how many.
        each: of one of them.
    """

    first: str
    last: str
    count: int
    each: RooflineCost


@dataclass(frozen=True, slots=True)
class Roofline:
    """A program on a device.

    Attributes:
        function: the program.
        groups: in order.
        seconds: of all of them.
        total: their costs together.
    """

    function: Function
    groups: tuple[Group, ...]
    seconds: float
    total: RooflineCost


def roofline(module: Module, function: Function, device: Accelerator) -> Roofline:
    """The roofline of one program of a rank; needs static shapes (GG0106)."""
    seen: set[Value] = set()
    program, function = function, inlined(module, function)
    layers = layers_of(function)
    inside = {op for ops in layers.values() for op in ops}
    rest = [op for op in function.block if op not in inside]
    groups: list[Group] = []
    for name, ops in layers.items():
        cost = _cost(module, ops, device, seen)
        last = groups[-1] if groups else None
        if last is not None and last.each == cost:
            groups[-1] = Group(last.first, name, last.count + 1, cost)
        else:
            groups.append(Group(name, name, 1, cost))
    if rest:
        groups.append(Group("", "", 1, _cost(module, rest, device, seen)))
    total = RooflineCost()
    for group in groups:
        for _ in range(group.count):
            total += group.each
    seconds = sum(group.count * group.each.seconds for group in groups)
    return Roofline(program, tuple(groups), seconds, total)


def _cost(module: Module, ops: Iterable[Op], device: Accelerator, seen: set[Value]) -> RooflineCost:
    made = RooflineCost()
    for op, times in ops_run(module, ops):
        made += cost_of_op(module, op, device, seen).times(times)
    return made


def cost_of_op(module: Module, op: Op, device: Accelerator, seen: set[Value]) -> RooflineCost:
    """The cost of one op.

    Args:
        module: has its mesh.
        op: the op; it runs no function.
        device: the accelerator.
        seen: the arguments that earlier ops have read; those of this op are added.
    """
    if OPS[op.name].collective:
        return _exchange(module, op, device, seen)
    matrix = op.name in MATRIX_OPS
    work = work_of(op)
    flops = _number(work.flops) + _number(work.transcendentals)
    kind = op.operands[0].dtype.name if op.operands else "f32"
    moved = _traffic(op, seen)
    return RooflineCost(
        flops=flops,
        matrix_s=flops / device.matrix_flops(kind) if matrix else 0.0,
        vector_s=0.0 if matrix else flops / device.vector_flops,
        bytes=moved,
        memory_s=moved / device.hbm_bandwidth,
        instructions=_instructions(op, matrix, flops),
    )


def instruction_count(module: Module, function: Function, device: Accelerator) -> int:
    """The instructions of :func:`roofline` of a whole program, without its times (GG0106)."""
    known: dict[tuple[object, ...], int] = {}
    total = 0
    for op, times in ops_run(module, inlined(module, function).block):
        key = (op.name, op.attrs, *[v.type for v in (*op.operands, *op.results)])
        count = known.get(key)
        if count is None:
            count = known[key] = cost_of_op(module, op, device, set()).instructions
        total += count * times
    return total


def _number(count: object) -> int:
    return count if isinstance(count, int) else 0


def _traffic(op: Op, seen: set[Value]) -> int:
    """Bytes an op moves to and from device memory; an argument is read once."""
    if has_trait(op, Trait.VIEW):
        return 0
    moved = 0
    updated = op_def(op.name).updates
    for value in op.operands:
        source = memory_owner(value)
        if updated is not None and value is op.operands[0]:
            continue
        if source.op is None and source not in seen:
            if has_trait(op, Trait.PARTIAL_READ) and value is op.operands[0]:
                moved += op.results[0].type.nbytes
                continue
            seen.add(source)
            moved += source.type.nbytes
    if updated is not None:
        moved += 2 * op.operands[updated].type.nbytes
    return moved


def _exchange(module: Module, op: Op, device: Accelerator, seen: set[Value]) -> RooflineCost:
    """A collective: bytes over the links of a chip, memory on both sides, a latency for each step.

    An argument that it is the first to read is read from device memory.

    Ranks are numbered chip by chip, and node by node. Levels work side by side, as parts of the
    bytes can be at different levels; their steps follow each other. It is the least that stages
    take, or what one ring or mesh over all ranks does (:attr:`Accelerator.flat_collectives`).
    """
    groups = groups_of(module, op)
    ranks = max([len(group) for group in groups], default=1)
    if ranks < 2:
        return RooflineCost()
    given, made = op.operands[0].type.nbytes, op.results[0].type.nbytes
    inside, *between = _level_needs(op, groups, device)
    # Both are written and read, unless they stay in the core.
    moved = sum([2 * size for size in (given, made) if size > device.sbuf_bytes])
    moved += _traffic(op, seen) if given <= device.sbuf_bytes else 0
    return RooflineCost(
        bytes=moved,
        memory_s=moved / device.hbm_bandwidth,
        link_bytes=inside.bytes,
        node_bytes=sum([_of_a_node(item, device) for item in between]),
        link_s=traffic_seconds((inside, *between)),
        instructions=inside.steps + sum([item.steps for item in between]),
    )


def _level_needs(op: Op, groups: Groups, device: Accelerator) -> list[LevelTraffic]:
    if not device.flat_collectives or op.name == "collective_permute":
        return level_traffic(op, groups, device.levels)
    whole = max(op.operands[0].type.nbytes, op.results[0].type.nbytes)
    return flat_traffic(op.name, whole, groups, device.levels)


def _of_a_node(item: LevelTraffic, device: Accelerator) -> int:
    """Bytes that one node of a part sends."""
    return ceil(item.bytes * device.node_ranks / item.level.part)


def _instructions(op: Op, matrix: bool, flops: int) -> int:
    if matrix:
        rows, columns, free = _TILE
        return max(1, flops // (2 * rows * columns * free))
    elements = prod(op.results[0].type.dims)
    return max(1, ceil(elements / (_PARTITIONS * _COLUMNS)))


_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class OpGroup:
    """Ops of one name in scopes that differ only in numbers.

    Attributes:
        op: their name.
        scope: of all of them, ``*`` for numbers; empty for ops without a scope.
        dtype: of the first operand of the first of them.
        count: how often they run.
        seconds: of each run after the other, the sum of ``max(compute, memory) + links`` of each.
        cost: of all runs together.
    """

    op: str
    scope: str
    dtype: str
    count: int = 0
    seconds: float = 0.0
    cost: RooflineCost = field(default_factory=RooflineCost)

    @property
    def intensity(self) -> float:
        """Operations for each byte of device memory; infinite without traffic."""
        return self.cost.flops / self.cost.bytes if self.cost.bytes else float("inf")

    @property
    def rate(self) -> float:
        """Operations per second; 0 for ops that take no time."""
        return self.cost.flops / self.seconds if self.seconds else 0.0

    @property
    def bound(self) -> str:
        """The resource that takes longest: ``compute``, ``memory`` or ``link``."""
        return self.cost.bound


def op_groups(module: Module, function: Function, device: Accelerator) -> list[OpGroup]:
    """The groups of a program, the one that takes longest first; needs static shapes (GG0106).

    Their seconds are no less than the roofline of the program in sum, where the arithmetic of one
    op runs beside the memory traffic of another.
    """
    seen: set[Value] = set()
    found: dict[tuple[str, str], OpGroup] = {}
    for op, times in ops_run(module, inlined(module, function).block):
        cost = cost_of_op(module, op, device, seen)
        key = (op.name, _NUMBER.sub("*", op.loc.scope))
        group = found.get(key)
        if group is None:
            group = found[key] = OpGroup(*key, _dtype(op))
        group.count += times
        group.seconds += times * cost.seconds
        group.cost += cost.times(times)
    return sorted(found.values(), key=lambda group: -group.seconds)


def _dtype(op: Op) -> str:
    values: Sequence[Value] = op.operands or op.results
    return values[0].dtype.name if values else ""
