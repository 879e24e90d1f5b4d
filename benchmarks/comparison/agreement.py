"""Do two engines give the same greedy tokens, and where they part, was it a near tie?

Up to the first place where a row differs both have read the same tokens, so that the logits of one
engine tell how close its choice was to the other one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.comparison.interfaces import Turn

# Distance of two logits that rounding explains. In bf16 logits of 16 to 32 lie 0.125 apart.
# Quantized weights are rounded in another way by each engine.
NEAR: Mapping[str, float] = {"f32": 0.01, "bf16": 0.25, "int8": 0.5, "int4": 1.0}


@dataclass(frozen=True, slots=True)
class Agreement:
    """The rows of one turn of two engines.

    Attributes:
        rows: number of rows.
        equal: rows with the same tokens throughout.
        near: the distance of logits at the first difference, of rows that part at a near tie.
        apart: the same of other rows; infinite for a token that is not among the best.
    """

    rows: int
    equal: int
    near: tuple[float, ...]
    apart: tuple[float, ...]

    def __str__(self) -> str:
        """As printed, e.g. ``7/8, 1 near tie (0.02)``."""
        parts = [f"{self.equal}/{self.rows}"]
        if self.near:
            ties = "near tie" if len(self.near) == 1 else "near ties"
            parts.append(f"{len(self.near)} {ties} ({max(self.near):.2g})")
        if self.apart:
            parts.append(f"{len(self.apart)} differ ({max(self.apart):.2g})")
        return ", ".join(parts)


def agreement(ours: Turn, theirs: Turn, weights: str) -> Agreement:
    """Compare the tokens of a turn with those of another engine.

    Args:
        ours: with ``rivals``.
        theirs: of the same prompts and as many steps.
        weights: a key of :data:`NEAR`.
    """
    equal, near, apart = 0, list[float](), list[float]()
    for tokens, others, rivals in zip(ours.tokens, theirs.tokens, ours.rivals, strict=True):
        pairs = enumerate(zip(tokens, others, strict=True))
        place = next((at for at, (mine, other) in pairs if mine != other), None)
        if place is None:
            equal += 1
            continue
        logits = dict(map(tuple[int, float], rivals[place]))
        gap = logits[tokens[place]] - logits.get(others[place], -float("inf"))
        (near if gap <= NEAR[weights] else apart).append(gap)
    return Agreement(len(ours.tokens), equal, tuple(near), tuple(apart))
