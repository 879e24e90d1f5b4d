"""The journal: what every pass did, in order, and what its rules declined to do.

Validation, blame and explanation are readers of this one record. When nobody asks for it there is
no journal, and it costs one ``is None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from graphgen.ir import Loc, Op, TensorType, Value
from graphgen.passes.core.relation import Relation
from graphgen.passes.core.rule import NoMatch


@dataclass(frozen=True, slots=True)
class OpSnapshot:
    """An op as it was when a rewrite was made; passes change what it reads, and erase it.

    Attributes:
        op: the op.
        operands: what it read then.
        types: of its results then.
    """

    op: Op
    operands: tuple[Value, ...]
    types: tuple[TensorType, ...]


def seen(ops: Iterable[Op]) -> tuple[OpSnapshot, ...]:
    """Ops as they are now, each once."""
    return tuple([see(op) for op in dict.fromkeys(ops)])


def see(op: Op) -> OpSnapshot:
    """An op as it is now."""
    return OpSnapshot(op, op.operands, tuple([result.type for result in op.results]))


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite.

    Attributes:
        number: 1-based within its pass; what fuel counts.
        pass_name: the pass.
        rule: the rule, or what the pass calls what it did.
        function: the function it was made in.
        root: the op it started from, as text.
        loc: where that op comes from.
        created: ops it made.
        replaced: values before, values after, and how they relate.
        before: the root, and the ops whose results were replaced.
        after: the ops made.
        source: the rule's place in its pass, or the line of the pass that did it: file:line.
        gain: what is better for it, in words; empty where the pass does not say.
    """

    number: int
    pass_name: str
    rule: str
    function: str
    root: str
    loc: Loc
    created: tuple[Op, ...] = ()
    replaced: tuple[tuple[Value, Value, Relation], ...] = ()
    before: tuple[OpSnapshot, ...] = ()
    after: tuple[OpSnapshot, ...] = ()
    source: str = ""
    gain: str = ""

    def __str__(self) -> str:
        gain = f": {self.gain}" if self.gain else ""
        return f"{self.pass_name} #{self.number}: {self.rule} at {self.root} ({self.loc!r}){gain}"


@dataclass(frozen=True, slots=True)
class MatchFailure:
    """A rule that looked at an op and declined.

    Attributes:
        pass_name, rule: who.
        function: where.
        root: the op, as text.
        loc: where the op comes from.
        why: the reason, and the value it was found at.
    """

    pass_name: str
    rule: str
    function: str
    root: str
    loc: Loc
    why: NoMatch


@dataclass(slots=True)
class Journal:
    """The record of one pipeline run.

    Attributes:
        applications: in order.
        misses: in order.
        copies: values of functions that were written anew: the value before, and its copy.
    """

    applications: list[Rewrite] = field(default_factory=list[Rewrite])
    misses: list[MatchFailure] = field(default_factory=list[MatchFailure])
    copies: list[tuple[Value, Value]] = field(default_factory=list[tuple[Value, Value]])

    def of_pass(self, name: str) -> list[Rewrite]:
        """The applications of one pass."""
        return [item for item in self.applications if item.pass_name == name]

    def nearest(self, rule: str, scope: str = "") -> MatchFailure | None:
        """The miss of ``rule`` that got furthest, among ops of a module scope and below it."""
        return max(self._near(rule, scope), key=lambda miss: miss.why.depth, default=None)

    def _near(self, rule: str, scope: str) -> Iterator[MatchFailure]:
        for miss in self.misses:
            inside = not scope or miss.loc.scope == scope or miss.loc.scope.startswith(f"{scope}.")
            if miss.rule == rule and inside:
                yield miss


def describe(op: Op) -> str:
    """An op in a few words, ``%y = dot_general(%rms_norm, %w)``: unnamed values go by their op."""
    results = ", ".join(_short(value) for value in op.results)
    operands = ", ".join(_short(value) for value in op.operands)
    return f"{results} = {op.name}({operands})"


def _short(value: Value) -> str:
    return f"%{value.name or (value.op.name if value.op else '?')}"
