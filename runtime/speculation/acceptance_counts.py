"""Numbers of proposed and of accepted tokens, by place."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class AcceptanceCounts:
    """Numbers of proposed and of accepted tokens.

    Attributes:
        launches: steps of the target, those without proposals too.
        rows: rows that took part in them.
        tokens: tokens that rows got.
        proposed: at place i, rows that were proposed more than i tokens.
        accepted: at place i, rows that accepted more than i tokens.
    """

    launches: int = 0
    rows: int = 0
    tokens: int = 0
    proposed: list[int] = field(default_factory=list[int])
    accepted: list[int] = field(default_factory=list[int])

    def note(self, proposed: int, made: int, accepted: int | None = None) -> None:
        """Count one row of one launch.

        Args:
            proposed: tokens that it was proposed.
            made: tokens that it got.
            accepted: proposed ones of them; all but the last one by default.
        """
        self.rows += 1
        self.tokens += made
        taken = min(made - 1, proposed) if accepted is None else accepted
        for counts, size in ((self.proposed, proposed), (self.accepted, taken)):
            counts.extend([0] * (size - len(counts)))
            for place in range(size):
                counts[place] += 1

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens that a row gets of a launch; 0 without one."""
        return self.tokens / self.rows if self.rows else 0.0

    @property
    def acceptance(self) -> list[float]:
        """For each place the share of proposals there that was accepted."""
        accepted = [*self.accepted, *[0] * (len(self.proposed) - len(self.accepted))]
        return [a / p for a, p in zip(accepted, self.proposed, strict=True)]
