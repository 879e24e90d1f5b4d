"""Results of checking the rewrites of one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from graphgen.eval.element_kinds import Number, element_text
from graphgen.passes.core.journal import Rewrite


class RewriteStatus(Enum):
    """The result of checking one rewrite.

    PROVED: both sides are the same for all sizes and values: their elements have one normal form,
        with the type that each op rounds to.
    REAL: both sides are equal on all samples, and for all sizes and values in real arithmetic: the
        rounding differs, the ranges of the types do not.
    EQUAL: both sides are equal on all samples.
    IN_CONTEXT: they differ on values that the ranges of the operands exclude, and are equal on all
        samples within these ranges.
    SEARCHED: they differ on drawn values of a window; no call was found that gives such values, and
        that these cannot occur is not shown.
    WRONG: they differ on values that a call can have.
    TOGETHER: wrong alone, right with the rewrite after it.
    APPROXIMATED: they differ, and the ops before are such that the pass says it approximates.
    UNDECIDED: they differ only on values that perhaps no call has, or could not be evaluated.
    UNCHECKED: there is nothing to compare within the function.
    """

    PROVED = "proved"
    REAL = "equal in real arithmetic"
    EQUAL = "equal on samples"
    IN_CONTEXT = "right in its context"
    SEARCHED = "right in its context (searched)"
    WRONG = "wrong"
    TOGETHER = "right together"
    APPROXIMATED = "approximated"
    UNDECIDED = "undecided"
    UNCHECKED = "not checked"


_RIGHT = (RewriteStatus.PROVED, RewriteStatus.REAL, RewriteStatus.EQUAL)
# Right, with something to show.
_SHOWN = (RewriteStatus.TOGETHER, RewriteStatus.IN_CONTEXT)


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Values on which both sides of a rewrite differ.

    Attributes:
        sizes: of the symbols.
        values: boundary values as text, by name with type.
        index: of the element that differs most.
        before, after: its values.
        relative: largest difference over the largest value before, or over the element's own.
        rounding: whether the meaning is equal, and only the rounding goes over the budget.
        program: both sides as IR.
    """

    sizes: Mapping[str, int]
    values: tuple[str, ...]
    index: tuple[int, ...]
    before: Number
    after: Number
    relative: float
    rounding: bool
    program: str

    @property
    def text(self) -> str:
        """The example in a few lines."""
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        sizes = ", ".join(f"{key}={value}" for key, value in self.sizes.items())
        what = "rounded differently" if self.rounding else "differs"
        lines = [f"{what}{' for ' + sizes if sizes else ''}: element {at or '[]'} is"]
        lines[0] += (
            f" {element_text(self.before, 9)} before and {element_text(self.after, 9)} after"
        )
        return "\n".join([*lines, *[f"  {value}" for value in self.values], self.program])


@dataclass(frozen=True, slots=True)
class RewriteCheck:
    """Result of checking one rewrite.

    Attributes:
        rewrite: the rewrite.
        status: the result.
        reason: of any status but proved and equal; of one in context, what agreed there.
        counterexample: where both sides differ; of one in context, in a narrower window.
    """

    rewrite: Rewrite
    status: RewriteStatus
    reason: str = ""
    counterexample: Counterexample | None = None

    def approximated(self, names: Collection[str]) -> RewriteCheck:
        """The check where the pass approximates the ops of these names."""
        ops = {one.op.name for one in self.rewrite.before}
        if self.status is not RewriteStatus.WRONG or ops.isdisjoint(names):
            return self
        return replace(self, status=RewriteStatus.APPROXIMATED)

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.rewrite}: {self.status.value}{reason}"


@dataclass(frozen=True, slots=True)
class RewriteSummary:
    """Results of checking the rewrites of one pass, each alone.

    Attributes:
        counts: number of rewrites by status.
        remarkable: those that are neither proved nor equal, in order.
        seconds: time the checks took.
    """

    counts: Mapping[RewriteStatus, int]
    remarkable: tuple[RewriteCheck, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @classmethod
    def of(cls, checks: Iterable[RewriteCheck], seconds: float = 0.0) -> RewriteSummary:
        """Count the checks of a pass."""
        every = list(checks)
        notable = tuple(one for one in every if one.status not in _RIGHT)
        return cls(Counter(one.status for one in every), notable, seconds)

    def having(self, status: RewriteStatus) -> list[RewriteCheck]:
        """The remarkable rewrites with this status."""
        return [one for one in self.remarkable if one.status is status]

    @property
    def total(self) -> int:
        """Number of rewrites."""
        return sum(self.counts.values())

    @property
    def right(self) -> int:
        """Number of rewrites that are right: alone, together with the next, or in their context.

        Those whose counterexample was only searched for are not among them.
        """
        return sum(self.counts.get(one, 0) for one in (*_RIGHT, *_SHOWN))

    @property
    def unchecked(self) -> int:
        """Number of rewrites of which nothing is compared alone: changes of the interface."""
        return self.counts.get(RewriteStatus.UNCHECKED, 0)

    @property
    def searched(self) -> int:
        """Number of rewrites with a counterexample that no call was found to reach."""
        return self.counts.get(RewriteStatus.SEARCHED, 0)

    @property
    def wrong(self) -> RewriteCheck | None:
        """The first wrong rewrite."""
        return next(iter(self.having(RewriteStatus.WRONG)), None)

    @property
    def text(self) -> str:
        """``12 proved, 1 wrong``: the counts that are not zero."""
        found = [
            f"{self.counts[status]} {status.value}"
            for status in RewriteStatus
            if self.counts.get(status)
        ]
        return ", ".join(found) or "none"
