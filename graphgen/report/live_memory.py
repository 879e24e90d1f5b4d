"""The live memory of a program and its arguments, as data and as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.analysis.liveness import LiveMemory, live_memory
from graphgen.analysis.overview import argument_groups
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.text.printer import value_names


@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """All memory of a program on one rank.

    Attributes:
        arguments: bytes of weights, caches and inputs, which stay for the whole program.
        live: intermediate values, op by op.
    """

    arguments: dict[str, int]
    live: LiveMemory

    @property
    def total(self) -> int:
        """Arguments, and intermediate values at the peak."""
        return sum(self.arguments.values()) + self.live.peak.bytes


def program_memory(module: Module, function: Function) -> ProgramMemory:
    """The memory of a program; needs static shapes (GG0106)."""
    live = live_memory(module, function)
    arguments = {
        group.kind: sum(value.type.nbytes for value in group.values)
        for group in argument_groups(module, live.function)
    }
    return ProgramMemory(arguments, live)


def memory_json(memory: ProgramMemory) -> Json:
    """The curve, and when each intermediate value is alive: positions of ops, counted from 0."""
    live, names = memory.live, value_names(memory.live.function)
    peak = live.peak
    return {
        "arguments": dict[str, Json](memory.arguments),
        "ops": len(live.ops),
        "bytes": list(live.bytes),
        "lifetimes": [
            {
                "name": names[item.value][1:],
                "type": item.value.type.text,
                "bytes": item.value.type.nbytes,
                "first": item.first,
                "last": item.last,
            }
            for item in live.lifetimes
        ],
        "peak": {
            "bytes": peak.bytes,
            "op": live.worst if live.ops else None,
            "alive": [names[value][1:] for value in peak.alive],
        },
    }
