"""Liveness analysis: the memory of a program over its ops, its peak, the values alive at any op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from graphgen.analysis.calls import inlined
from graphgen.analysis.work import updated_operand
from graphgen.ir import Function, Module, Op, Role, Value
from graphgen.ops import Trait, op_def
from graphgen.ops.control import CONTROL, callees, kernel_of


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


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The ops over which an intermediate value occupies memory.

    Attributes:
        value: the value; views of it and updates in place share its memory.
        first: position of the op that makes it.
        last: position of the last op that needs it; the number of ops for an output.
    """

    value: Value
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LiveMemory:
    """The live intermediate values of a program on one rank, op by op.

    Attributes:
        function: the program without calls; positions are those of its ops.
        ops: the ops in order.
        bytes: of live intermediate values while each op runs.
        inside: of these, bytes at the peak of the function that a loop or a conditional runs.
        first, last: of each intermediate value in program order, as :class:`Lifetime` says.
    """

    function: Function
    ops: Sequence[Op]
    bytes: Sequence[int]
    inside: Sequence[int]
    first: Mapping[Value, int]
    last: Mapping[Value, int]

    @property
    def lifetimes(self) -> list[Lifetime]:
        """The lifetimes of the intermediate values, in program order."""
        return [Lifetime(value, place, self.last[value]) for value, place in self.first.items()]

    @property
    def worst(self) -> int:
        """The position of the first op at the peak (``ValueError`` for an empty program)."""
        return max(range(len(self.bytes)), key=self.bytes.__getitem__)

    def alive(self, place: int) -> list[Value]:
        """The values alive while the op at a position runs, largest first."""
        last = self.last
        found = [value for value, at in self.first.items() if at <= place <= last[value]]
        return sorted(found, key=lambda value: -value.type.nbytes)

    @property
    def peak(self) -> Peak:
        """The op with the most live bytes."""
        if not self.ops:
            return Peak()
        worst = self.worst
        return Peak(self.bytes[worst], self.ops[worst], self.alive(worst))


def peak_memory(module: Module, function: Function) -> Peak:
    """The peak of :func:`live_memory`."""
    return live_memory(module, function).peak


def live_memory(module: Module, function: Function) -> LiveMemory:
    """The memory of a program run op by op in order, with states updated in place.

    A reshape is a view; an update of a state writes into it; nothing else is fused or reused, so a
    compiler that fuses stays below. Needs static shapes (GG0106).
    """
    function = inlined(module, function, kernels=False)
    home = _homes(module, function)
    ops = list(function.block)
    born: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for place, op in enumerate(ops):
        for result in op.results:
            if home[result] is result:
                born[result] = place
            last[home[result]] = place
        for value in op.operands:
            last[home[value]] = place
    last.update((home[value], len(ops)) for _, value in function.outputs)
    change = [0] * (len(ops) + 2)
    for value, place in born.items():
        size = value.type.nbytes
        change[place] += size
        change[last[value] + 1] -= size
    # The peak of the body of a loop, or of a branch, adds to the op that runs it.
    runs = [op.name in CONTROL and not kernel_of(op) for op in ops]
    inside = [_inside(module, op) if run else 0 for op, run in zip(ops, runs, strict=True)]
    running = [a + b for a, b in zip(accumulate(change[: len(ops)]), inside, strict=True)]
    return LiveMemory(function, ops, running, inside, born, last)


def _inside(module: Module, op: Op) -> int:
    """The peak of the functions that an op runs."""
    names = callees(op)
    return max((peak_memory(module, module.function(name)).bytes for name in names), default=0)


def _homes(module: Module, function: Function) -> dict[Value, Value]:
    """The value whose memory each value uses: views and in-place updates share it."""
    home: dict[Value, Value] = {value: value for value in function.args}
    states = {row.name for row in module.entries(Role.STATE)}
    shares: dict[str, bool] = {}
    for op in function.block:
        home.update(zip(op.results, op.results, strict=True))
        if kernel_of(op):
            written = updated_operand(module, op)
            if written is not None and _is_free(home[written], states):
                home[op.result] = home[written]
            continue
        if op.name == "while":
            home.update(_carried(module, op, home, states))
            continue
        if op.name not in shares:
            definition = op_def(op.name)
            shares[op.name] = definition.has(Trait.VIEW) or definition.updates is not None
        if not shares[op.name]:
            continue
        base = home[op.operands[0]]
        if op_def(op.name).has(Trait.VIEW) or _is_free(base, states):
            home[op.result] = base
    return home


def _carried(
    module: Module, op: Op, home: Mapping[Value, Value], states: set[str]
) -> dict[Value, Value]:
    """The memory of the final state of a loop: it is changed in place where that is free.

    A loop-carried value that the body returns unchanged needs no memory of its own.
    """
    body = module.function(op.attrs.text("body"))
    found: dict[Value, Value] = {}
    for operand, result, arg, (_, after) in zip(
        op.operands, op.results, body.args, body.outputs, strict=True
    ):
        base = home[operand]
        if after is arg or _is_free(base, states):
            found[result] = base
    return found


def _is_free(base: Value, states: set[str]) -> bool:
    """True for memory that an update may write into: of a state, or of an intermediate value."""
    return base.op is not None or base.name in states
