"""Rewrite rules: functions indexed by their root op that rewrite it or explain the refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core.relation import Relation


@dataclass(frozen=True, slots=True)
class NoMatch:
    """The refusal of a rule.

    Attributes:
        reason: the condition that failed, in words.
        at: the value that failed it.
        depth: position of the failed condition among those of the rule, from 1; orders near
            misses. 0 where nothing of the pattern was found: not a near miss.
    """

    reason: str
    at: Value | None = None
    depth: int = 0

    def after(self, conditions: int) -> NoMatch:
        """The same refusal, of a part of a rule that runs after ``conditions`` others."""
        return replace(self, depth=self.depth + conditions)


def no_match(reason: str, at: Value | None = None, *, depth: int = 1) -> NoMatch:
    """Refuse a rewrite.

    Args:
        reason: the condition that failed, in words.
        at: the value that failed it.
        depth: position of the condition among those of the rule, from 1. Of several refusals,
            ``explain`` shows the deepest first, so a rule numbers its conditions in order.
    """
    return NoMatch(reason, at, depth)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Result of a rule that has more to record than the values that replace the results.

    Attributes:
        values: they replace the results.
        related: other values before, values after, and their relation; for the journal.
        gain: the improvement, in words; for the journal.
    """

    values: Sequence[Value]
    related: tuple[tuple[Value, Value, Relation], ...] = ()
    gain: str = ""


# (root op, builder that inserts before it) -> the values that replace the results.
Apply = Callable[[Op, Builder], Sequence[Value] | Replacement | NoMatch]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite.

    Attributes:
        name: the name in reports.
        roots: names of the ops it starts from.
        apply: the function that rewrites one root op.
    """

    name: str
    roots: tuple[str, ...]
    apply: Apply


def rule(*roots: str) -> Callable[[Apply], Rule]:
    """Make a :class:`Rule` of the decorated function, named like it."""

    def wrap(apply: Apply) -> Rule:
        return Rule(apply.__name__.strip("_").replace("_", "-"), roots, apply)

    return wrap
