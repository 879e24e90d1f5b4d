"""Expected speed of speculation: tokens a step for each k, and the time of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.lowering.plan.speculation_bound import StepSeconds


@dataclass(frozen=True, slots=True)
class Speedup:
    """Expected tokens and seconds of a step of k tokens.

    Attributes:
        length: k.
        tokens: expected number of tokens a row gets of a step.
        step_s: seconds of a step, proposals included.
        decode_s: seconds of a decode step.
    """

    length: int
    tokens: float
    step_s: float
    decode_s: float

    @property
    def token_s(self) -> float:
        """Seconds a token."""
        return self.step_s / self.tokens

    @property
    def ratio(self) -> float:
        """Speed beside plain decoding; above 1 is faster."""
        return self.decode_s / self.token_s


def speedups(accepted: Sequence[float], seconds: StepSeconds) -> list[Speedup]:
    """The expectation for each k that has a time.

    Args:
        accepted: at place i the share of steps in which more than i proposals are accepted, where
            enough are proposed: E[tokens] = 1 + accepted[0] + ... + accepted[k - 2].
        seconds: of the launches.
    """
    return [
        Speedup(length, 1 + sum(accepted[: length - 1]), seconds.step(length), seconds.decode)
        for length in sorted(seconds.verify)
        if length - 1 <= len(accepted)
    ]
