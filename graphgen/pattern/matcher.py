"""The matcher of patterns: backtracking over orders and alternatives, with the best attempt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphgen.ir import Function, Op, Value
from graphgen.ops.external import shown_name
from graphgen.pattern.conditions import Known, holds, matches
from graphgen.pattern.nodes import AnyOf, NumberPattern, OpPattern, Pattern
from graphgen.pattern.see_through import At, integer, peeled, scalar, spread
from graphgen.pattern.text import KINDS

# How far a constant may be from that of a pattern: its bits, rounded a few times.
_ROUNDED = {"bf16": 8e-3, "f16": 1e-3}


@dataclass(frozen=True, slots=True)
class Bindings:
    """The values and numbers of a match so far.

    Attributes:
        values: of variables.
        places: per variable, its dimensions in the root's.
        numbers: of captured constants.
        ops: that fit, each with the dimensions of its first result in the root's.
    """

    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    places: Mapping[str, At] = field(default_factory=dict[str, At])
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    ops: tuple[tuple[Op, At | None], ...] = ()


@dataclass(slots=True)
class Attempt:
    """The attempt that came furthest.

    Attributes:
        count: the ops that fit.
        reason: the difference, in words.
        at: the value that differs.
    """

    count: int = 0
    reason: str = ""
    at: Value | None = None


class Matcher:
    """Matches patterns.

    Args:
        known: facts beside the graph.
        loose: whether to look through layout and rounding, as rules do.

    Attributes:
        best: the attempt that came furthest.
    """

    def __init__(self, known: Known | None = None, *, loose: bool = False) -> None:
        self.known = known or Known()
        self.loose = loose
        self.best = Attempt()
        self._shape: Sequence[object] = ()

    def root(self, op: Op, pattern: Pattern) -> Iterator[Bindings]:
        """Match an op, not what is under its layout; its dimensions number those of all it reads.

        An op of several results has no dimensions, and fits no rule.
        """
        if isinstance(pattern, AnyOf):
            for choice in pattern.choices:
                yield from self.root(op, choice)
        elif isinstance(pattern, OpPattern) and len(op.results) == 1:
            self._shape = op.result.shape
            yield from self.op(op, pattern, Bindings(), tuple(range(op.result.type.rank)))

    def op(
        self, op: Op, pattern: OpPattern, bound: Bindings, at: At | None = None
    ) -> Iterator[Bindings]:
        """Match an op and what it reads."""
        value = op.results[0] if op.results else None
        if value is None or not self._is_called(op, pattern):
            self._missed(bound, f"{_text(pattern)} is expected, and {op.name} found", value)
            return
        if not matches(pattern.type, value.type.text):
            return
        wrong = [c for c in pattern.conditions if not holds(c, value, op, self.known)]
        if wrong:
            self._missed(bound, f"{wrong[0].key} is not {wrong[0].wanted}", value)
            return
        bound = replace(bound, ops=(*bound.ops, (op, at)))
        if pattern.operands is None:
            yield bound
            return
        wanted, given = pattern.operands, op.operands
        if len(given) < len(wanted) or (len(given) > len(wanted) and not pattern.open):
            self._missed(bound, f"{op.name} has {len(given)} operands", value)
            return
        inner = self._operand_places(op, at)
        orders = [list(zip(given, inner, wanted, strict=False))]
        if self.loose and pattern.any_order:
            orders.append(list(zip(given[::-1], inner[::-1], wanted, strict=False)))
        for pairs in orders:
            yield from self._operands(pairs, bound)

    def value(
        self, value: Value, at: At | None, node: Pattern, bound: Bindings
    ) -> Iterator[Bindings]:
        """Match an operand."""
        if isinstance(node, AnyOf):
            for choice in node.choices:
                yield from self.value(value, at, choice, bound)
        elif isinstance(node, NumberPattern):
            yield from self._number(value, node, bound)
        elif isinstance(node, OpPattern) and node.value:
            yield from self._named(value, at, node, bound)
        elif isinstance(node, OpPattern) and (node.names or node.operands is not None):
            value, at = self._peeled(value, at, node)
            if value.op is not None:
                yield from self.op(value.op, node, bound, at)
            else:
                self._missed(bound, f"{_text(node)} is expected, and an argument found", value)
        elif isinstance(node, OpPattern) and self._fits(value, node):
            yield bound

    def _is_called(self, op: Op, pattern: OpPattern) -> bool:
        called = shown_name(op).replace("-", "_")
        names = pattern.names
        return not names or any(matches(name, called) or name == op.name for name in names)

    def _operands(
        self, pairs: Sequence[tuple[Value, At | None, Pattern]], bound: Bindings
    ) -> Iterator[Bindings]:
        if not pairs:
            yield bound
            return
        for more in self.value(*pairs[0], bound):
            yield from self._operands(pairs[1:], more)

    def _peeled(
        self, value: Value, at: At | None, node: OpPattern | None = None
    ) -> tuple[Value, At | None]:
        """Look through layout and rounding, up to an op that the pattern names."""
        if not self.loose or at is None:
            return value, at
        return peeled(value, at, node.names if node is not None else ())

    def _operand_places(self, op: Op, at: At | None) -> list[At | None]:
        """The dimensions of the operands in the root's."""
        if at is None:
            return [None] * len(op.operands)
        if op.name == "reduce":
            return [self._reduced(op, at)]
        return [
            at if value.type.rank == len(at) else (None,) * value.type.rank for value in op.operands
        ]

    def _reduced(self, op: Op, at: At) -> At | None:
        """Give the reduced dimension the place of the root that the result has not."""
        dims = op.attrs.integers("dimensions")
        if len(dims) != 1:
            return None
        size = op.operands[0].shape[dims[0]]
        free = [i for i, n in enumerate(self._shape) if i not in at and n == size]
        return (*at[: dims[0]], free[0], *at[dims[0] :]) if free else None

    def _number(self, value: Value, node: NumberPattern, bound: Bindings) -> Iterator[Bindings]:
        found, tolerance = scalar(value), _ROUNDED.get(value.dtype.name, 1e-6)
        found = integer(spread(value)[0]) if found is None else found
        if found is None:
            self._missed(bound, "a constant is expected", value)
        elif node.value is not None and not math.isclose(found, node.value, rel_tol=tolerance):
            self._missed(bound, f"{node.value:g} is expected, and {found:g} found", value)
        else:
            named = {**bound.numbers, node.name: found} if node.name else bound.numbers
            yield replace(bound, numbers=named)

    def _named(
        self, value: Value, at: At | None, node: OpPattern, bound: Bindings
    ) -> Iterator[Bindings]:
        what = node.value
        value, at = self._peeled(value, at)
        if not what.startswith("$"):
            if self._fits(value, node):
                yield bound
            return
        name = what[1:]
        same, known = bound.values.get(name, value) is value, bound.places.get(name, at)
        if not same or (at is not None and known is not None and not _agree(at, known)):
            self._missed(bound, f"{name} is another value here", value)
        elif self._fits(value, node):
            places = bound.places
            if at is not None and known is not None:
                whole = [
                    one if other is None else other for one, other in zip(at, known, strict=True)
                ]
                places = {**places, name: tuple(whole)}
            yield replace(bound, values={**bound.values, name: value}, places=places)

    def _fits(self, value: Value, node: OpPattern) -> bool:
        what = node.value
        fits = matches(node.type, value.type.text) and all(
            holds(condition, value, value.op, self.known) for condition in node.conditions
        )
        if what.startswith("%"):
            return fits and matches(what[1:], value.name or "")
        if what == "const":
            return fits and value.producer("constant") is not None
        if what in KINDS:
            kind = KINDS[what]
            return fits and value.op is None and kind in ("", self.known.kinds.get(value, ""))
        return fits

    def _missed(self, bound: Bindings, reason: str, at: Value | None) -> None:
        if len(bound.ops) > self.best.count:
            self.best = Attempt(len(bound.ops), reason, at)


def match_rule(op: Op, pattern: Pattern) -> tuple[Iterator[Bindings], Matcher]:
    """Match a rule's pattern at its root: the ways it fits, and the matcher that records misses."""
    matcher = Matcher(loose=True)
    return matcher.root(op, pattern), matcher


def _agree(one: At, other: At) -> bool:
    """Test whether two values lie alike; dimensions of size 1 lie anywhere."""
    return all(a == b or a is None or b is None for a, b in zip(one, other, strict=True))


def _text(pattern: OpPattern) -> str:
    return " or ".join(pattern.names) or "an op"


@dataclass(frozen=True, slots=True)
class Match:
    """One match of a chain.

    Attributes:
        ops: one for each op of the chain.
        output: the output's name where the chain ends in ``return``.
    """

    ops: tuple[Op, ...]
    output: str = ""


def find(function: Function, chain: Sequence[OpPattern], known: Known) -> Iterator[Match]:
    """Every place in a function where the chain fits, in program order."""
    matcher = Matcher(known)
    for op in function.block:
        for bound in matcher.op(op, chain[0], Bindings()):
            yield from _follow(matcher, function, (op,), chain[1:], bound)


def _follow(
    matcher: Matcher,
    function: Function,
    ops: tuple[Op, ...],
    rest: Sequence[OpPattern],
    bound: Bindings,
) -> Iterator[Match]:
    """Complete a chain of which ``ops`` fit."""
    if not rest:
        yield Match(ops)
    elif rest[0].names == ("return",):
        yield from (Match(ops, name) for name, value in function.outputs if value.op is ops[-1])
    else:
        users = dict.fromkeys(user for result in ops[-1].results for user in result.users)
        for user in users:
            for more in matcher.op(user, rest[0], bound):
                yield from _follow(matcher, function, (*ops, user), rest[1:], more)
