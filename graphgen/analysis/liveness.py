"""Liveness analysis: the peak memory of a program and the values alive at the peak."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

from graphgen.analysis.calls import inlined
from graphgen.ir import Function, Module, Op, Role, Value
from graphgen.ops import Trait, op_def
from graphgen.ops.control import callees


@dataclass(slots=True)
class Peak:
    """The peak of a program on one rank.

    Attributes:
        bytes: of live intermediate values; arguments (weights, states, inputs) are not counted.
        op: the op at the peak; ``None`` for an empty program.
        alive: the live values, largest first.
    """

    bytes: int = 0
    op: Op | None = None
    alive: list[Value] = field(default_factory=list[Value])


def peak_memory(module: Module, function: Function) -> Peak:
    """The peak of a program run op by op in order, with states updated in place.

    A reshape is a view; an update of a state writes into it; nothing else is fused or reused, so a
    compiler that fuses stays below. Needs static shapes (GG0106).
    """
    function = inlined(module, function)
    home = _homes(module, function)
    born: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for place, op in enumerate(function.block):
        born.update((result, place) for result in op.results if home[result] is result)
        last.update((home[value], place) for value in (*op.operands, *op.results))
    last.update((home[value], function.block.size) for _, value in function.outputs)
    change = [0] * (function.block.size + 2)
    for value, place in born.items():
        change[place] += value.type.nbytes
        change[last[value] + 1] -= value.type.nbytes
    running = list(accumulate(change[: function.block.size]))
    for place, op in enumerate(function.block):
        # The peak of the body of a loop, or of a branch, adds to the op that runs it.
        running[place] += max(
            (peak_memory(module, module.function(name)).bytes for name in callees(op)), default=0
        )
    if not running:
        return Peak()
    worst = max(range(len(running)), key=running.__getitem__)
    alive = [value for value, place in born.items() if place <= worst <= last[value]]
    alive.sort(key=lambda value: -value.type.nbytes)
    return Peak(running[worst], list(function.block)[worst], alive)


def _homes(module: Module, function: Function) -> dict[Value, Value]:
    """The value whose memory each value uses: views and in-place updates share it."""
    home: dict[Value, Value] = {value: value for value in function.args}
    states = {row.name for row in module.entries(Role.STATE)}
    for op in function.block:
        home.update((result, result) for result in op.results)
        definition = op_def(op.name)
        if definition.has(Trait.VIEW):
            home[op.result] = home[op.operands[0]]
        elif definition.updates is not None:
            base = home[op.operands[0]]
            if base.op is not None or base.name in states:
                home[op.result] = base
    return home
