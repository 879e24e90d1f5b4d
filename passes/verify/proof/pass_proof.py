"""Results of proofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """Result of a proof."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of comparing two programs for all sizes.

    Attributes:
        status: proved for all sizes and arguments, refuted by sizes and indices, or undecided.
        output: the first output that is not proved; empty where all are equal.
        why: the reason of what is undecided.
        counterexample: sizes, and indices of an element that differs for some arguments.
    """

    status: Status
    output: str = ""
    why: str = ""
    counterexample: Mapping[str, int] = field(default_factory=dict[str, int])

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.counterexample.items())
        return ": ".join(part for part in (self.status, self.output, self.why or sizes) if part)


PROVED = Proof(Status.PROVED)


@dataclass(frozen=True, slots=True)
class PassProof:
    """Proofs of the programs of a module after a pass.

    Attributes:
        programs: by the program's name.
    """

    programs: Mapping[str, Proof]

    @property
    def proved(self) -> int:
        """Number of programs that are proved equal."""
        return sum(proof.status is Status.PROVED for proof in self.programs.values())

    @property
    def first(self) -> tuple[str, Proof] | None:
        """The first program that is not proved, refuted ones before undecided ones."""
        for status in (Status.REFUTED, Status.UNDECIDED):
            for name, proof in self.programs.items():
                if proof.status is status:
                    return name, proof
        return None
