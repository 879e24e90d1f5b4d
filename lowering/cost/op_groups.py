"""Group equal ops of all layers of a program, and add up their time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.analysis.calls import inlined
from graphgen.analysis.loops import ops_run
from graphgen.ir import Function, Module, Op, Value
from graphgen.lowering.cost.roofline import RooflineCost, cost_of_op
from graphgen.targets import Accelerator

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
