"""Rules of patterns, traced or written, and a rewrite that may refuse with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from graphgen.build import Builder
from graphgen.composites import DECOMPOSITIONS
from graphgen.ir import AttrValue, Function, Op, Value, tensor
from graphgen.ir.dtype import f32
from graphgen.ops import op_def
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.core.rule import Rule
from graphgen.passes.raising.matchers import placed
from graphgen.pattern import (
    AnyOf,
    Bindings,
    Condition,
    NumberPattern,
    OpPattern,
    Pattern,
    apply,
    match_rule,
    number,
    variables,
)
from graphgen.pattern.see_through import At, scalar

# The size of a row; no decomposition has this number, and no root of it.
ROW = 97
# Attributes become numbers that are captured; this one stands for them while tracing.
_MAGIC = 0.0123
_PARTS = ("first", "second", "third")
_MOVES = frozenset(("convert", "broadcast_in_dim", "reshape", "transpose"))


def derived(name: str, *shapes: Sequence[int], captured: str = "", **attrs: AttrValue) -> OpPattern:
    """Trace a composite's decomposition, and write it as a pattern.

    Args:
        name: the composite; its operands are the variables.
        shapes: of the operands; ``ROW`` is the size whose multiples a decomposition divides by.
        captured: the attribute that is a captured number.
        attrs: the other attributes.
    """

    def build(b: Builder, *args: Value) -> Value:
        op = b.emit(name, args, {**attrs, captured: _MAGIC} if captured else attrs)
        return DECOMPOSITIONS[name](b, args, op.attrs)[0]

    return traced(build, op_def(name).operands, shapes, captured)


def traced(
    build: Callable[..., Value],
    names: Sequence[str],
    shapes: Sequence[Sequence[int]],
    captured: str = "",
) -> OpPattern:
    """Trace what a function builds of f32 operands of these names, and write it as a pattern."""
    function = Function("pattern")
    args = [function.block.add_arg(tensor(f32, shape), f"a{i}") for i, shape in enumerate(shapes)]
    known: dict[Value, Pattern] = dict(zip(args, variables(" ".join(names)), strict=True))
    with Builder(function) as b:
        made = _node(build(b, *args), known, {_MAGIC: captured, float(ROW): "count"})
    assert isinstance(made, OpPattern)
    return made


def first_operand(pattern: OpPattern) -> OpPattern:
    """The first operand of the root of a pattern, which is an op."""
    inner = pattern.operands[0] if pattern.operands else None
    assert isinstance(inner, OpPattern)
    return inner


def _node(value: Value, known: dict[Value, Pattern], numbers: Mapping[float, str]) -> Pattern:
    """Write a value as a pattern; each variable and each shared part once."""
    op = value.op
    if value in known or op is None:
        return known[value]
    if op.name in _MOVES and scalar(value) is None:
        return _node(op.operands[0], known, numbers)
    if op.name == "slice":
        # Parts of an operand are variables; how they are cut is for a check to say.
        parts = [node for value, node in known.items() if value.producer("slice") is not None]
        known[value] = OpPattern(value=f"${_PARTS[len(parts)]} part")
        return known[value]
    operands = [_operand(operand, known, numbers) for operand in op.operands]
    attrs = {"kind": op.attrs.text("kind")} if op.name == "reduce" else {}
    known[value] = _spellings(apply(op.name, *operands, **attrs))
    return known[value]


def _operand(
    value: Value, known: dict[Value, Pattern], numbers: Mapping[float, str]
) -> Pattern | float:
    constant = scalar(value)
    if constant is None:
        return _node(value, known, numbers)
    names = [name for magic, name in numbers.items() if name and abs(constant - magic) < 1e-6]
    return number(names[0]) if names else constant


def _spellings(made: OpPattern) -> Pattern:
    """Add what others write for the same op."""
    assert made.operands is not None
    if made.names == ("divide",) and made.operands[1] == number("count"):
        return AnyOf((made, made.operands[0] * number("inverse")))
    if made.names == ("reduce",) and made.conditions == (Condition("kind", "=", "maximum"),):
        # JAX clamps the maximum of a softmax from below.
        return AnyOf((made, apply("maximum", made, -inf)))
    if made.names == ("logistic",):
        return logistic(made.operands[0])
    return made


def logistic(x: Pattern) -> Pattern:
    """The spellings of a logistic function."""
    return apply("logistic", x) | 1.0 / (1.0 + exponential_of_negative(x))


def exponential_of_negative(x: Pattern) -> Pattern:
    """``exp(-x)``; if x is a product with a constant, also with the constant negated."""
    found: Pattern = apply("exponential", -x)
    factors = x.operands or () if isinstance(x, OpPattern) and x.names == ("multiply",) else ()
    for this, other in (factors, factors[::-1]) if factors else ():
        if isinstance(other, NumberPattern) and other.value is not None:
            found = found | apply("exponential", this * -other.value | -this * other.value)
    return found


@dataclass(frozen=True, slots=True)
class Found:
    """A place where a pattern fits.

    Attributes:
        root: the op of the pattern's root.
        bound: the variables and numbers.
    """

    root: Op
    bound: Bindings

    def value(self, name: str) -> Value:
        """The value of a variable, without layout and rounding."""
        return self.bound.values[name]

    def operand(self, name: str) -> tuple[Value, At]:
        """The value of a variable, and its dimensions in the root's."""
        return self.bound.values[name], self.bound.places[name]

    def number(self, name: str) -> float | None:
        """A captured constant; ``None`` if the alternative that fits has none."""
        return self.bound.numbers.get(name)

    def places(self, name: str) -> list[int]:
        """The dimensions of the root along which a variable is not repeated."""
        return [place for place in self.bound.places[name] if place is not None]

    def places_of_op(self, name: str) -> At:
        """The dimensions of the root of the first op of this name."""
        found = [at for op, at in self.bound.ops if op.name == name]
        return (found[0] if found else None) or ()

    def laid_out(self, b: Builder, name: str) -> Value:
        """A variable in the dimensions of the root."""
        shape = self.root.result.shape
        return placed(b, *self.operand(name), range(len(shape)), shape)

    def vector(self, b: Builder, name: str) -> Value:
        """A variable along one dimension as [N], of the root's type."""
        (place,) = self.places(name)
        row = placed(b, *self.operand(name), (place,), self.root.result.shape[place : place + 1])
        return b.convert(row, self.root.result.dtype)


@dataclass(frozen=True, slots=True)
class PatternRule:
    """One rewrite by patterns.

    Attributes:
        name: in reports.
        patterns: spellings of one computation, tried in order.
        rewrite: builds what replaces the root, or names a condition that a pattern cannot say.
        missing: the reason where hardly anything of a pattern is found.
    """

    name: str
    patterns: tuple[OpPattern, ...]
    rewrite: Callable[[Found, Builder], Value | NoMatch]
    missing: str

    @property
    def rule(self) -> Rule:
        """The rule for a rewriter."""
        roots = dict.fromkeys(name for pattern in self.patterns for name in pattern.names)
        return Rule(self.name, tuple(roots), self._apply)

    def _apply(self, op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        refusals: list[NoMatch] = []
        for pattern in self.patterns:
            ways, matcher = match_rule(op, pattern)
            for bound in ways:
                made = self.rewrite(Found(op, bound), b)
                if not isinstance(made, NoMatch):
                    return [b.convert(made, op.result.dtype)]
                refusals.append(made.after(pattern.size) if made.depth else made)
            best = matcher.best
            # Two ops, or half of them, may fit by chance.
            if best.count > 2 and best.count > pattern.size / 2:
                refusals.append(no_match(best.reason, best.at, depth=best.count))
        deepest = max(refusals, key=lambda refusal: refusal.depth, default=None)
        return deepest or NoMatch(self.missing, op.result)
