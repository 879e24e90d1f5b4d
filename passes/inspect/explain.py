"""Explanation of a pass at a place, from the journal: its rewrites and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import Loc, Module
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.core.journal import Journal, MatchFailure, Rewrite, describe


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """A query of the journal; empty fields match everything.

    Attributes:
        value: name of a result of the op that is asked about, without the ``%``.
        scope: a module scope; what is below it counts.
        function: a program.
        rule: one rule of the pass.
    """

    value: str = ""
    scope: str = ""
    function: str = ""
    rule: str = ""

    def holds(self, rule: str, function: str, root: str, loc: Loc) -> bool:
        """True for an entry of the journal that matches."""
        results = root.partition(" = ")[0].split(", ")
        return (
            (not self.rule or self.rule == rule)
            and (not self.function or self.function == function)
            and (not self.value or f"%{self.value}" in results)
            and (
                not self.scope or loc.scope == self.scope or loc.scope.startswith(f"{self.scope}.")
            )
        )


@dataclass(frozen=True, slots=True)
class FailureReason:
    """One reason of a rule for not applying, and the ops it was found at.

    Attributes:
        rule: the rule.
        reason: the first predicate that did not hold.
        at: the value it did not hold for, as text; empty where the rule named none.
        touched: the pass that last made or rewrote that value's op before; empty for none.
        root: the op the rule looked at.
        function: where.
        loc: the op's source.
        count: how many ops were declined for this reason.
        depth: how far the rule got, 0 where it saw nothing of what it looks for.
    """

    rule: str
    reason: str
    at: str
    touched: str
    root: str
    function: str
    loc: Loc
    count: int
    depth: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Rewrites and refusals of a pass at a place.

    Attributes:
        pass_name: the pass.
        applications: rewrites it made there.
        reasons: why its rules declined other ops there; per rule, what got furthest first.
        place: the query.
    """

    pass_name: str
    applications: tuple[Rewrite, ...]
    reasons: tuple[FailureReason, ...]
    place: ExplainQuery


def explain(
    module: Module, passes: Sequence[Pass], pass_name: str, place: ExplainQuery
) -> Explanation:
    """Run a pipeline and explain what one of its passes did at a place.

    Args:
        module: changed in place.
        passes: the pipeline; passes after the last ``pass_name`` do not run.
        pass_name: the pass to explain.
        place: where.

    Raises:
        GraphgenError: GG0301 when the pipeline has no such pass.
    """
    last = max((i for i, item in enumerate(passes) if item.name == pass_name), default=None)
    if last is None:
        names = ", ".join(dict.fromkeys(item.name for item in passes))
        raise GraphgenError(
            "GG0301", f"the pipeline has no pass '{pass_name}'", help=f"it has {names}"
        )
    journal = Journal()
    run_pipeline(module, passes[: last + 1], journal=journal)
    made = tuple(
        item
        for item in journal.of_pass(pass_name)
        if place.holds(item.rule, item.function, item.root, item.loc)
    )
    missed = [
        miss
        for miss in journal.misses
        if miss.pass_name == pass_name
        and place.holds(miss.rule, miss.function, miss.root, miss.loc)
    ]
    return Explanation(pass_name, made, tuple(_reasons(missed, pass_name)), place)


def _reasons(missed: Iterable[MatchFailure], pass_name: str) -> list[FailureReason]:
    """Misses of one rule and one reason together, those that got furthest first."""
    groups: dict[tuple[str, str], list[MatchFailure]] = {}
    for miss in missed:
        groups.setdefault((miss.rule, miss.why.reason), []).append(miss)
    ordered = sorted(groups.values(), key=lambda group: (group[0].rule, -group[0].why.depth))
    return [_reason(group, pass_name) for group in ordered]


def _reason(group: Sequence[MatchFailure], pass_name: str) -> FailureReason:
    first = group[0]
    at = first.why.at
    text, touched = "", ""
    if at is not None:
        text = describe(at.op) if at.op is not None else f"%{at.name} : {at.type.text}"
        via = at.op.loc.via if at.op is not None else ()
        touched = next((name for name in reversed(via) if name != pass_name), "")
    return FailureReason(
        first.rule,
        first.why.reason,
        text,
        touched,
        first.root,
        first.function,
        first.loc,
        len(group),
        first.why.depth,
    )
