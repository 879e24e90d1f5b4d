"""The journal: rewrites and match failures of a pipeline, in order.

Validation, bisection and explanation read this one record. It is optional: without a journal a
rewrite costs one ``is None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from graphgen.ir import Function, Loc, Op, TensorType, Value
from graphgen.passes.core.relation import Relation
from graphgen.passes.core.rule import NoMatch


@dataclass(frozen=True, slots=True)
class OpSnapshot:
    """An op at the time of a rewrite; later passes change its operands and erase it.

    Attributes:
        op: the op.
        operands: what it read then.
        types: of its results then.
    """

    op: Op
    operands: tuple[Value, ...]
    types: tuple[TensorType, ...]


def seen(ops: Iterable[Op]) -> tuple[OpSnapshot, ...]:
    """Snapshots of ops, each once."""
    return tuple([see(op) for op in dict.fromkeys(ops)])


def see(op: Op) -> OpSnapshot:
    """Snapshot of an op."""
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

    @property
    def touched(self) -> Iterator[tuple[Op, tuple[TensorType, ...]]]:
        """Each op before, after and made by it, with the types of its operands and results."""
        for one in (*self.before, *self.after):
            yield one.op, (*(value.type for value in one.operands), *one.types)
        for op in self.created:
            yield op, tuple([value.type for value in (*op.operands, *op.results)])

    def __str__(self) -> str:
        gain = f": {self.gain}" if self.gain else ""
        return f"{self.pass_name} #{self.number}: {self.rule} at {self.root} ({self.loc!r}){gain}"


# Function, rule, root op without operands, scope, file, line, how many such rewrites came before.
RewriteKey = tuple[str, str, str, str, str, int, int]


class RewriteKeys:
    """Names of rewrites that stay when other rewrites of the pass are left out."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, str, str, int], int] = {}

    def key(self, function: str, rule: str, root: str, loc: Loc) -> RewriteKey:
        """The key of the next rewrite by ``rule`` at an op described by ``root``."""
        what = function, rule, root.partition("(")[0], loc.scope, loc.file, loc.line
        count = self._counts[what] = self._counts.get(what, -1) + 1
        return (*what, count)


def keys_of(rewrites: Iterable[Rewrite]) -> list[RewriteKey]:
    """The keys of all rewrites of one pass, in order."""
    keys = RewriteKeys()
    return [keys.key(item.function, item.rule, item.root, item.loc) for item in rewrites]


@dataclass(frozen=True, slots=True)
class MatchFailure:
    """A refusal of a rule at an op.

    Attributes:
        pass_name, rule: the pass and its rule.
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


# (the rewrite, the function it is made in or ``None`` for the interface); called while the values
# before and after are both in the graph, and the readers still read those before.
OnRewrite = Callable[[Rewrite, Function | None], None]


@dataclass(slots=True)
class Journal:
    """The record of one pipeline run.

    Attributes:
        applications: in order.
        misses: in order.
        copies: values of rebuilt functions: the value before, and its copy.
        relations: of copies to the values before, where they are not equal.
        on_rewrite: called with each application as it is entered.
    """

    applications: list[Rewrite] = field(default_factory=list[Rewrite])
    misses: list[MatchFailure] = field(default_factory=list[MatchFailure])
    copies: list[tuple[Value, Value]] = field(default_factory=list[tuple[Value, Value]])
    relations: dict[Value, Relation] = field(default_factory=dict[Value, Relation])
    on_rewrite: OnRewrite | None = None

    def enter(self, application: Rewrite, function: Function | None) -> None:
        """Record an application made in ``function``."""
        self.applications.append(application)
        if self.on_rewrite is not None:
            self.on_rewrite(application, function)

    def of_pass(self, name: str) -> list[Rewrite]:
        """The applications of one pass."""
        return [item for item in self.applications if item.pass_name == name]

    def nearest(self, rule: str, scope: str = "") -> MatchFailure | None:
        """The match failure of ``rule`` with the largest depth, in a module scope and below it."""
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
