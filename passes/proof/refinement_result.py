"""Verdicts of proofs that one module refines another, by program and output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphgen.passes.proof.pass_proof import Status


@dataclass(frozen=True, slots=True)
class Claim:
    """The verdict on one output, or one state, of a program.

    Attributes:
        program: its name.
        output: the output's name.
        status: proved, proved in real arithmetic, or but for narrow numbers, or undecided.
        reason: of what is undecided, why, without names and places.
        pair: the ops of both programs at which the relation is lost, with their places.
        rounding: places in the second program whose rounding differs.
        counterexample: of what is refuted, an element with both numbers and what gives them.
    """

    program: str
    output: str
    status: Status
    reason: str = ""
    pair: tuple[str, str] = ("", "")
    rounding: tuple[str, ...] = ()
    counterexample: str = ""

    def __str__(self) -> str:
        text = f"@{self.program} {self.output}: {self.status}"
        if self.counterexample:
            text += f": {self.counterexample}"
        if self.reason:
            text += f": {self.reason}"
        if any(self.pair):
            text += f" ({self.pair[0]} | {self.pair[1]})"
        return text


@dataclass(frozen=True, slots=True)
class RefinementProof:
    """The verdicts on all outputs and states of all programs.

    Attributes:
        claims: one for each.
        assumptions: what a caller promises, in words.
        relation: origin of the relation of arguments and results, in words.
        rules: names of the rules that were used, of elements and of the normal form.
        compared: pairs of values that were compared term by term; all others are like one of them,
            up to names.
        visited: ops of both programs that pairs of values were followed through.
    """

    claims: Sequence[Claim]
    assumptions: Sequence[str] = ()
    relation: str = ""
    rules: Sequence[str] = ()
    compared: int = 0
    visited: int = 0

    def having(self, *statuses: Status) -> list[Claim]:
        """The claims with one of these statuses."""
        return [claim for claim in self.claims if claim.status in statuses]

    @property
    def open(self) -> list[Claim]:
        """The claims that are not proved, not even in real arithmetic or but for narrow numbers."""
        proved = (Status.PROVED, Status.REAL, Status.NARROW)
        return [c for c in self.claims if c.status not in proved]

    @property
    def complete(self) -> bool:
        """True if all outputs and states are proved, also if in real arithmetic only."""
        return bool(self.claims) and not self.open

    def rounding_places(self) -> Iterator[str]:
        """Each place whose rounding differs, once."""
        seen: set[str] = set()
        for claim in self.claims:
            for place in claim.rounding:
                if place not in seen:
                    seen.add(place)
                    yield place
