"""A rewrite rule: a function indexed by its root op that either rewrites or says why not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, Value
from passes.core.relation import Relation


@dataclass(frozen=True, slots=True)
class No:
    """Why a rule does not apply.

    Attributes:
        reason: what was looked for and not found.
        at: the value it was looked for at.
        depth: how far the rule got before it gave up; orders near misses.
    """

    reason: str
    at: Value | None = None
    depth: int = 0


def no(reason: str, at: Value | None = None) -> No:
    """The rule does not apply, because of ``reason`` at ``at``.

    A rule tests its predicates from top to bottom, so the line of this call tells how many held.
    """
    return No(reason, at, sys._getframe(1).f_lineno)  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True, slots=True)
class Made:
    """What a rule made, where there is more to say than which values replace the results.

    Attributes:
        values: they replace the results.
        related: other values before, values after, and how they relate; for the journal.
        gain: what is better for it, in words; for the journal.
    """

    values: Sequence[Value]
    related: tuple[tuple[Value, Value, Relation], ...] = ()
    gain: str = ""


# Gets the root op and a builder that inserts before it; gives the values that replace the results.
Apply = Callable[[Op, Builder], Sequence[Value] | Made | No]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite.

    Attributes:
        name: as shown to people.
        roots: names of the ops it starts from.
        apply: the rewrite.
    """

    name: str
    roots: tuple[str, ...]
    apply: Apply


def rule(*roots: str) -> Callable[[Apply], Rule]:
    """Make a :class:`Rule` of the decorated function, named like it."""

    def wrap(apply: Apply) -> Rule:
        return Rule(apply.__name__.strip("_").replace("_", "-"), roots, apply)

    return wrap
