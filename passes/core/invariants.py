"""Invariants: predicates of a module that passes require, provide or invalidate.

They are computed from the module, so they survive printing and parsing. Passes name them in
``requires``, ``provides`` and ``invalidates``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphgen.analysis import free_symbols
from graphgen.ir import Module, Role

Holds = Callable[[Module], bool]


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact.

    Attributes:
        name: as passes write it.
        doc: the condition, in a few words that can follow "that is".
        holds: whether it holds for a module.
    """

    name: str
    doc: str
    holds: Holds


FACTS: dict[str, Fact] = {}


def fact(name: str) -> Callable[[Holds], Holds]:
    """Enter the decorated predicate as the fact ``name``; its docstring says what holds."""

    def enter(holds: Holds) -> Holds:
        assert name not in FACTS, name
        FACTS[name] = Fact(name, (holds.__doc__ or "").strip(), holds)
        return holds

    return enter


def facts_of(module: Module) -> frozenset[str]:
    """The facts that hold for a module."""
    return frozenset([item.name for item in FACTS.values() if item.holds(module)])


@fact("specialized")
def specialized(module: Module) -> bool:
    """every size is a number"""
    return not free_symbols(module.functions.values())


@fact("partitioned")
def partitioned(module: Module) -> bool:
    """the programs are those of one rank"""
    return module.ranks == 1 or module.level in ("sharded", "target")


@fact("raw-weights")
def raw_weights(module: Module) -> bool:
    """programs read checkpoint tensors; no preparation has been moved out"""
    return not module.entries(Role.PARAM)
