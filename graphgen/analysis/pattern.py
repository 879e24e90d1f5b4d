"""Patterns over ops: what stands in a graph, written as it is printed.

    dot_general(_, param) -> reshape -> transpose

A pattern is a chain of ops; ``->`` goes to an op that reads a result of the one before, or to
``return``. An op is a name, in the IR's or HLO's spelling; ``*`` and ``?`` stand for letters, ``|``
for alternatives, ``_`` for any op. Behind it may stand, in this order:

* operands in parentheses, each one a nested op (the one that makes it), ``_`` (anything),
  ``param``, ``input``, ``weight`` or ``cache`` (an argument of that kind), ``const``, ``%name``, or
  ``$x``, which is the same value wherever it is written; a last ``...`` stands for any more;
* conditions in braces: ``{dtype=f32 bytes>=1MB}``. A key is an attribute, or ``bytes``, ``uses``,
  ``rank`` (of the first result), ``name``, ``layer``, ``scope``, ``file``, ``line``;
* a colon and the type of the first result: ``: bf16[*,64]``. Operands may have one too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Op, Value
from graphgen.text.grammar import format_attr

_TOKEN = re.compile(
    r"\s*(?:(->|\.\.\.|[(),:|])|(\{[^}]*\})|([\w*?]+\[[^\]]*\])|(%[^\s,(){}|:]+)|(\$\w+)"
    r"|([\w*?.]+(?:-(?!>)[\w*?.]+)*))"
)
_CONDITION = re.compile(r"([\w.]+)\s*(>=|<=|!=|=|>|<)\s*(\[[^\]]*\]|[^\s,]+)[\s,]*")
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
KINDS = {"param": "", "input": "inputs", "weight": "weights", "cache": "caches"}
# What people write, where the IR has another name.
_SPELLED = {"dot": "dot_general", "broadcast": "broadcast_in_dim"}
_HELP = "write e.g. 'dot_general(_, param){dtype=f32} -> reshape'; see graphgen grep --help"


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of something about an op with a text or a number."""

    key: str
    relation: str
    wanted: str


@dataclass(frozen=True, slots=True)
class OpPattern:
    """One op, or what an operand must be.

    Attributes:
        names: what it may be called; empty for anything.
        operands: patterns of what it reads; ``None`` for whatever.
        open: whether more operands may follow.
        conditions: that hold for it.
        type: of its first result, empty for any.
        value: ``%name``, ``$variable``, or a key of :data:`KINDS` or ``const``; empty for an op.
    """

    names: tuple[str, ...] = ()
    operands: tuple[OpPattern, ...] | None = None
    open: bool = False
    conditions: tuple[Condition, ...] = ()
    type: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """One match of a pattern.

    Attributes:
        ops: one for each op of the chain.
        output: the output's name where the chain ends in ``return``.
    """

    ops: tuple[Op, ...]
    output: str = ""


@dataclass(slots=True)
class Known:
    """Facts beside the graph that a pattern may query.

    Attributes:
        kinds: of arguments: ``inputs``, ``weights`` or ``caches``.
        layers: of ops.
    """

    kinds: Mapping[Value, str] = field(default_factory=dict[Value, str])
    layers: Mapping[Op, str] = field(default_factory=dict[Op, str])


def parse_pattern(text: str) -> tuple[OpPattern, ...]:
    """The chain that a text stands for (GG0705 with the place of a mistake)."""
    return _Parser(text).chain()


def find(function: Function, chain: Sequence[OpPattern], known: Known) -> Iterator[Match]:
    """Every place in a function where the chain fits, in program order."""
    finder = _Finder(function, known)
    for op in function.block:
        for bound in finder.op(op, chain[0], {}):
            yield from finder.follow((op,), chain[1:], bound)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                start = len(text) - len(text[at:].lstrip())
                raise self.fail("this is no part of a pattern", start)
            self.tokens.append((found[0].strip(), found.end() - len(found[0].strip())))
            at = found.end()
        self.at = 0

    def fail(self, what: str, at: int) -> GraphgenError:
        note = f"{self.text}\n{' ' * at}^"
        return GraphgenError("GG0705", f"pattern: {what}", note=note, help=_HELP)

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def place(self) -> int:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def chain(self) -> tuple[OpPattern, ...]:
        made = [self.node()]
        while self.peek() == "->":
            if made[-1].names == ("return",):
                raise self.fail("nothing reads what is returned", self.place())
            self.take()
            made.append(self.node())
        if self.peek():
            raise self.fail(f"expected -> or the end, found '{self.peek()}'", self.place())
        return tuple(made)

    def node(self, *, operand: bool = False) -> OpPattern:
        token, at = self.peek(), self.place()
        if operand and (token[:1] in ("%", "$") or token in (*KINDS, "const")):
            self.take()
            return OpPattern(value=token, conditions=self.conditions(), type=self.type())
        names = [self.name()]
        while self.peek() == "|":
            self.take()
            names.append(self.name())
        if "_" in names:
            names = []
        operands, more = self.operands()
        if "return" in names and (operand or len(names) > 1 or operands is not None):
            raise self.fail("return stands alone, at the end of a chain", at)
        return OpPattern(tuple(names), operands, more, self.conditions(), self.type())

    def name(self) -> str:
        at, token = self.place(), self.take()
        if not re.fullmatch(r"[\w*?.\-]+", token):
            raise self.fail(f"expected the name of an op, found '{token or 'the end'}'", at)
        return _SPELLED.get(token, token.replace("-", "_") if token != "hlo.opaque" else token)

    def operands(self) -> tuple[tuple[OpPattern, ...] | None, bool]:
        if self.peek() != "(":
            return None, False
        self.take()
        made: list[OpPattern] = []
        more = False
        while self.peek() != ")":
            if self.peek() == "...":
                self.take()
                more = True
                break
            made.append(self.node(operand=True))
            if self.peek() != ",":
                break
            self.take()
        if self.peek() != ")":
            raise self.fail("expected , or )", self.place())
        self.take()
        return tuple(made), more

    def conditions(self) -> tuple[Condition, ...]:
        token, at = self.peek(), self.place()
        if not token.startswith("{"):
            return ()
        self.take()
        inside = token[1:-1].strip()
        found = [Condition(*match) for match in _CONDITION.findall(inside)]
        if _CONDITION.sub("", inside).strip():
            raise self.fail(f"'{inside}' is not a list of key=value", at)
        return tuple(found)

    def type(self) -> str:
        if self.peek() != ":":
            return ""
        self.take()
        return self.take()


# What the variables of a pattern stand for.
Bound = Mapping[str, Value]


class _Finder:
    def __init__(self, function: Function, known: Known) -> None:
        self.function = function
        self.known = known

    def follow(
        self, ops: tuple[Op, ...], rest: Sequence[OpPattern], bound: Bound
    ) -> Iterator[Match]:
        """Complete a chain of which ``ops`` fit."""
        if not rest:
            yield Match(ops)
        elif rest[0].names == ("return",):
            yield from (
                Match(ops, name) for name, value in self.function.outputs if value.op is ops[-1]
            )
        else:
            users = dict.fromkeys(user for result in ops[-1].results for user in result.users)
            for user in users:
                for more in self.op(user, rest[0], bound):
                    yield from self.follow((*ops, user), rest[1:], more)

    def op(self, op: Op, pattern: OpPattern, bound: Bound) -> Iterator[Bound]:
        """The values of variables with which an op fits, if it does."""
        called = op.attrs.text("opcode").replace("-", "_") if op.name == "hlo.opaque" else op.name
        if pattern.names and not any(
            matches(name, called) or name == op.name for name in pattern.names
        ):
            return
        if not matches(pattern.type, op.results[0].type.text):
            return
        if not all(self.holds(condition, op.results[0], op) for condition in pattern.conditions):
            return
        if pattern.operands is None:
            yield bound
            return
        wanted, given = pattern.operands, op.operands
        if len(given) < len(wanted) or (len(given) > len(wanted) and not pattern.open):
            return
        yield from self.operands(list(zip(given, wanted, strict=False)), bound)

    def operands(self, pairs: list[tuple[Value, OpPattern]], bound: Bound) -> Iterator[Bound]:
        if not pairs:
            yield bound
            return
        for more in self.value(*pairs[0], bound):
            yield from self.operands(pairs[1:], more)

    def value(self, value: Value, pattern: OpPattern, bound: Bound) -> Iterator[Bound]:
        """As :meth:`op`, of what an operand is."""
        what = pattern.value
        if not what and (pattern.names or pattern.operands is not None):
            if value.op is not None:
                yield from self.op(value.op, pattern, bound)
            return
        fits = matches(pattern.type, value.type.text) and all(
            self.holds(condition, value, value.op) for condition in pattern.conditions
        )
        if what.startswith("$"):
            if fits and bound.get(what, value) is value:
                yield {**bound, what: value}
            return
        if what.startswith("%"):
            fits = fits and matches(what[1:], value.name or "")
        elif what == "const":
            fits = fits and value.producer("constant") is not None
        elif what:
            kind = KINDS[what]
            fits = fits and value.op is None and kind in ("", self.known.kinds.get(value, ""))
        if fits:
            yield bound

    def holds(self, condition: Condition, value: Value, op: Op | None) -> bool:
        """True if a condition holds; a condition on a missing attribute does not."""
        fact = _FACTS.get(condition.key)
        if fact is not None:
            actual = fact(value)
        elif condition.key == "layer":
            actual = self.known.layers.get(op, "") if op is not None else ""
        elif op is not None and condition.key in op.attrs:
            given = op.attrs[condition.key]
            actual = given if isinstance(given, str) else format_attr(given)
        else:
            return False
        return compare(actual, condition.relation, condition.wanted)


_FACTS: dict[str, Callable[[Value], str | int]] = {
    "bytes": lambda value: value.type.nbytes if value.type.static else 0,
    "uses": lambda value: sum(value.users.values()),
    "rank": lambda value: value.type.rank,
    "name": lambda value: value.name or "",
    "scope": lambda value: value.op.loc.scope if value.op else "",
    "file": lambda value: value.op.loc.file if value.op else "",
    "line": lambda value: value.op.loc.line if value.op else 0,
}


def compare(actual: str | int, relation: str, wanted: str) -> bool:
    """``actual relation wanted``; numbers by size where both are, texts with ``*`` and ``?``."""
    one, other = _number(str(actual)), _number(wanted)
    if relation in ("=", "!="):
        same = one == other if one is not None and other is not None else False
        return (same or matches(wanted, str(actual))) == (relation == "=")
    if one is None or other is None:
        return False
    return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[relation]


def _number(text: str) -> float | None:
    found = re.fullmatch(r"(-?[\d.]+(?:e-?\d+)?)(kB|MB|GB)?", text)
    try:
        return float(found[1]) * _UNITS.get(found[2] or "", 1) if found else None
    except ValueError:
        return None


_regexes: dict[str, re.Pattern[str]] = {}


def matches(wanted: str, text: str) -> bool:
    """True if ``text`` matches a glob of ``*`` and ``?``; an empty glob matches everything."""
    if not wanted:
        return True
    found = _regexes.get(wanted)
    if found is None:
        source = re.escape(wanted).replace(r"\*", ".*").replace(r"\?", ".")
        found = _regexes[wanted] = re.compile(source)
    return found.fullmatch(text) is not None
