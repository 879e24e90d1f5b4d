"""Rules of a pattern, a check with reasons, and a rewrite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.analysis.pattern import Bindings, OpPattern, match_rule
from graphgen.analysis.pattern.see_through import At
from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.core.rule import Rule
from graphgen.passes.raising.matchers import laid_out


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
        value, at, shape = self.value(name), self.bound.places[name], self.root.result.shape
        if value.shape == shape and at == tuple(range(len(shape))):
            return value
        kept = [index for index, place in enumerate(at) if place is not None]
        squeezed = b.reshape(value, [value.shape[index] for index in kept])
        return laid_out(b, squeezed, self.places(name), shape)

    def vector(self, b: Builder, name: str) -> Value:
        """A variable along one dimension as [N], of the root's type."""
        value, places = self.value(name), self.bound.places[name]
        sizes = zip(value.shape, places, strict=True)
        flat = b.reshape(value, [size for size, place in sizes if place is not None])
        return b.convert(flat, self.root.result.dtype)


@dataclass(frozen=True, slots=True)
class PatternRule:
    """One rewrite by patterns.

    Attributes:
        name: in reports.
        patterns: spellings of one computation, tried in order.
        rewrite: builds what replaces the root.
        missing: the reason where hardly anything of a pattern is found.
        check: conditions that a pattern cannot say; ``None`` if they hold.
    """

    name: str
    patterns: tuple[OpPattern, ...]
    rewrite: Callable[[Found, Builder], Value]
    missing: str
    check: Callable[[Found], NoMatch | None] = lambda found: None

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
                found = Found(op, bound)
                refusal = self.check(found)
                if refusal is None:
                    return [b.convert(self.rewrite(found, b), op.result.dtype)]
                refusals.append(refusal.after(pattern.size))
            best = matcher.best
            # Two ops, or half of them, may fit by chance.
            if best.count > max(2, pattern.size / 2):
                refusals.append(no_match(best.reason, best.at, depth=best.count))
        deepest = max(refusals, key=lambda refusal: refusal.depth, default=None)
        return deepest or NoMatch(self.missing, op.result)
