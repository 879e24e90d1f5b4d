"""The nodes of patterns, and the words rules write them with.

x, weight = variables("x weight")
normal = x * apply("rsqrt", total(x * x) / number("count") + number("epsilon"))
pattern = normal * weight
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ops import OPS, Trait


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of something about an op with a text or a number."""

    key: str
    relation: str
    wanted: str


class Pattern:
    """A value of the program, as a rule writes it; operators make ops of it."""

    __slots__ = ()

    def __add__(self, other: Pattern | float) -> OpPattern:
        return apply("add", self, other)

    def __radd__(self, other: float) -> OpPattern:
        return apply("add", other, self)

    def __sub__(self, other: Pattern | float) -> OpPattern:
        return apply("subtract", self, other)

    def __rsub__(self, other: float) -> OpPattern:
        return apply("subtract", other, self)

    def __mul__(self, other: Pattern | float) -> OpPattern:
        return apply("multiply", self, other)

    def __rmul__(self, other: float) -> OpPattern:
        return apply("multiply", other, self)

    def __truediv__(self, other: Pattern | float) -> OpPattern:
        return apply("divide", self, other)

    def __rtruediv__(self, other: float) -> OpPattern:
        return apply("divide", other, self)

    def __neg__(self) -> OpPattern:
        return apply("negate", self)

    def __or__(self, other: Pattern) -> AnyOf:
        return AnyOf((self, other))


@dataclass(frozen=True, slots=True)
class OpPattern(Pattern):
    """One op, or a condition on an operand.

    Attributes:
        names: globs of its name; empty for any op.
        operands: patterns of its operands; ``None`` for any.
        open: whether more operands may follow.
        conditions: that hold for it.
        type: of its first result, empty for any.
        value: ``%name``, ``$variable``, a kind of argument or ``const``; empty for an op.
        any_order: whether two operands may be exchanged.
    """

    names: tuple[str, ...] = ()
    operands: tuple[Pattern, ...] | None = None
    open: bool = False
    conditions: tuple[Condition, ...] = ()
    type: str = ""
    value: str = ""
    any_order: bool = False

    @property
    def size(self) -> int:
        """The count of ops of the pattern."""
        return (not self.value) + sum(size_of(operand) for operand in self.operands or ())


@dataclass(frozen=True, slots=True)
class NumberPattern(Pattern):
    """A constant that is broadcast, or arithmetic of constants.

    Attributes:
        name: of the captured number; empty for none.
        value: the number, ``None`` for any; bf16 models round theirs.
    """

    name: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class AnyOf(Pattern):
    """Alternatives, tried in order."""

    choices: tuple[Pattern, ...]


def size_of(pattern: Pattern) -> int:
    """Count the ops of a pattern; of alternatives the largest."""
    if isinstance(pattern, OpPattern):
        return pattern.size
    return max(map(size_of, pattern.choices)) if isinstance(pattern, AnyOf) else 0


def variables(names: str, suffix: str = "") -> list[OpPattern]:
    """Make variables; each is the same value wherever it is written."""
    return [OpPattern(value=f"${name}{suffix}") for name in names.split()]


def number(name: str) -> NumberPattern:
    """Make a constant that is captured."""
    return NumberPattern(name)


def apply(name: str, *operands: Pattern | float, **attrs: str) -> OpPattern:
    """Make an op of a name, with these attributes as texts."""
    nodes = tuple([x if isinstance(x, Pattern) else NumberPattern("", x) for x in operands])
    conditions = tuple([Condition(key, "=", value) for key, value in attrs.items()])
    any_order = name in OPS and OPS[name].has(Trait.COMMUTATIVE)
    return OpPattern((name,), nodes, False, conditions, any_order=any_order)


def total(x: Pattern) -> OpPattern:
    """Make the sum along one dimension."""
    return apply("reduce", x, kind="add")


def related(x: Pattern, direction: str, y: Pattern | float) -> AnyOf:
    """Make a comparison, also as others write it: the other way around."""
    mirrored = direction.translate(str.maketrans("LG", "GL"))
    return apply("compare", x, y, direction=direction) | apply("compare", y, x, direction=mirrored)
