"""Results of comparing the layers of a module before and after one pass."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.passes.core.journal import Rewrite
from graphgen.passes.verify.compare.deviation import Deviation


@dataclass(frozen=True, slots=True)
class LayerResult:
    """Comparison of one layer, or of several that cannot be cut apart.

    Attributes:
        label: the scope of the layer, ``embedding`` or ``head``, or the first and the last of
            several.
        meaning: the worst difference in float64.
        rounding: the worst difference in the program's own types.
        ok: True if both are within their limits.
        budget: the largest ``rounding`` allowed: more where the layer rounds to narrow numbers.
        first: of a layer that is not ``ok``, the first output and call over the limit.
        guilty: the rewrite that makes the difference, where one can be named.
        together: where that is right alone, the smallest set of rewrites that is wrong.
        same_as: label of the layer that was run in its place, whose text is the same before and
            after the pass; empty if it was run itself.
    """

    label: str
    meaning: Deviation
    rounding: Deviation
    ok: bool
    budget: float
    first: Deviation | None = None
    guilty: Rewrite | None = None
    together: tuple[Rewrite, ...] = ()
    same_as: str = ""

    @property
    def within_budget(self) -> bool:
        """True if the rounding stayed within the budget."""
        return self.rounding.relative <= self.budget


@dataclass(frozen=True, slots=True)
class LayerResults:
    """The layers of one pass.

    Attributes:
        changed: those that the pass changed, in order.
        unchanged: labels of those whose text it left as it was, which are not run.
    """

    changed: tuple[LayerResult, ...] = ()
    unchanged: tuple[str, ...] = ()

    @property
    def run(self) -> list[str]:
        """Labels of the layers that were run."""
        return [result.label for result in self.changed if not result.same_as]

    @property
    def wrong(self) -> list[LayerResult]:
        """Results of layers that differ too much."""
        return [result for result in self.changed if not result.ok]
