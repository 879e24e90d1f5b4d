"""Explanation of a pass at a place, from the journal: its rewrites and refusals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from graphgen.errors import GraphgenError, did_you_mean
from graphgen.ir import Loc, Module, Value
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.core.journal import Journal, MatchFailure, Rewrite, describe
from graphgen.passes.core.rule import Rule


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
        names = list(dict.fromkeys(item.name for item in passes))
        raise GraphgenError(
            "GG0301", f"the pipeline has no pass '{pass_name}'", help=nearest(pass_name, names)
        )
    journal, names = Journal(), _QueryNames()
    names.see(module)
    passes = passes[: last + 1]
    run_pipeline(module, passes, journal=journal, after=lambda item, after: names.see(after))
    names.check(place, journal, passes[last])
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


def nearest(name: str, known: Iterable[str]) -> str:
    """Help for a name that does not exist: the nearest ones, or all."""
    known = list(dict.fromkeys(known))
    return did_you_mean(name, known) or (f"it has {', '.join(known)}" if known else "")


class _QueryNames:
    """Names of functions, values and scopes that a module had at any time of a pipeline."""

    def __init__(self) -> None:
        self.functions: dict[str, None] = {}
        self.scopes: dict[str, None] = {}
        self.values: dict[str, None] = {}

    def see(self, module: Module) -> None:
        """Add the names of a module as it is now."""
        for function in module.functions.values():
            self.functions[function.name] = None
            for op in function.block:
                for value in op.results:
                    self.values[_result_name(value)] = None
                parts = op.loc.scope.split(".")
                self.scopes |= {".".join(parts[:n]): None for n in range(1, len(parts) + 1)}

    def check(self, place: ExplainQuery, journal: Journal, item: Pass) -> None:
        """Refuse names of a query that nothing had (GG0705, with the nearest ones)."""
        entries = [
            *journal.of_pass(item.name),
            *[miss for miss in journal.misses if miss.pass_name == item.name],
        ]
        rules = [*[entry.rule for entry in entries], *_rules_of(item)]
        roots = [name for entry in entries for name in entry.root.partition(" = ")[0].split(", ")]
        values = [*self.values, *[name.removeprefix("%") for name in roots]]
        scopes = [*self.scopes, *[entry.loc.scope for entry in entries]]
        for what, name, known in (
            ("function", place.function, list(self.functions)),
            ("module scope", place.scope, scopes),
            ("rule", place.rule, rules),
            ("op with a result", place.value, values),
        ):
            if name and name not in known:
                raise GraphgenError(
                    "GG0705", f"{item.name}: no {what} '{name}'", help=nearest(name, known)
                )


def _rules_of(item: Pass) -> list[str]:
    """Names of the rules in the file of a pass, those that looked at nothing included."""
    found: list[str] = []
    for value in vars(sys.modules[type(item).__module__]).values():
        rules: Sequence[object] = (value,)
        if isinstance(value, tuple | list):
            rules = cast("Sequence[object]", value)
        found += [each.name for each in rules if isinstance(each, Rule)]
    return found


def _result_name(value: Value) -> str:
    return value.name or (value.op.name if value.op is not None else "")


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
