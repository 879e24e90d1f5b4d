"""Results of proofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """Result of a proof.

    PROVED: equal for all sizes and arguments.
    REFUTED: the solver found sizes and arguments for which they differ.
    NOT_CONFIRMED: it did, and for these both programs compute the same in NumPy: the prover is
        wrong.
    UNDECIDED: neither a proof nor a counterexample was found.
    """

    PROVED = "proved"
    REFUTED = "refuted"
    NOT_CONFIRMED = "refuted wrongly"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class ModelElement:
    """An element of an argument in a model of the solver.

    Attributes:
        argument: its name.
        index: of the element.
        value: its value.
    """

    argument: str
    index: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of comparing two programs for all sizes.

    Attributes:
        status: proved for all sizes and arguments, refuted by sizes and indices, or undecided.
        output: the first output that is not proved; empty where all are equal.
        why: the reason of what is undecided.
        counterexample: sizes, and indices of an element that differs for some arguments.
        elements: of the arguments for which it differs; all others are zero.
    """

    status: Status
    output: str = ""
    why: str = ""
    counterexample: Mapping[str, int] = field(default_factory=dict[str, int])
    elements: tuple[ModelElement, ...] = ()

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

    def having(self, status: Status) -> dict[str, Proof]:
        """The programs with this status."""
        return {name: proof for name, proof in self.programs.items() if proof.status is status}

    def disputed(self, reasons: Mapping[str, str]) -> PassProof:
        """Proofs that do not stand beside a counterexample: those of some programs are undecided.

        Args:
            reasons: by program, the counterexample that was found.
        """
        made = {
            name: Proof(Status.UNDECIDED, why=reasons[name])
            if name in reasons and proof.status is Status.PROVED
            else proof
            for name, proof in self.programs.items()
        }
        return PassProof(made)

    @property
    def first(self) -> tuple[str, Proof] | None:
        """The first program that is not proved, refuted ones before undecided ones."""
        for status in (Status.REFUTED, Status.NOT_CONFIRMED, Status.UNDECIDED):
            for name, proof in self.programs.items():
                if proof.status is status:
                    return name, proof
        return None
