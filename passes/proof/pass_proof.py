"""Results of proofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """Result of a proof.

    PROVED: equal for all sizes and arguments, each element rounded alike.
    REAL: equal for all sizes and arguments in real arithmetic: rounding differs, ranges do not.
    NARROW: equal in real arithmetic if numbers that the caller asks to keep in narrow types are not
        rounded to these, and those of which that is assumed are within the ranges of these.
    REFUTED: the solver found sizes and arguments for which they differ.
    NOT_CONFIRMED: it did, and for these both programs compute the same in NumPy: the prover is
        wrong.
    UNDECIDED: neither a proof nor a counterexample was found.
    """

    PROVED = "proved"
    REAL = "equal in real arithmetic"
    NARROW = "equal but for narrow numbers"
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
        status: proved for all sizes and arguments, or in real arithmetic only, refuted by sizes
            and indices, or undecided.
        output: the first output that is not proved; empty where all are equal.
        why: the reason of what is undecided.
        counterexample: sizes, and indices of an element that differs for some arguments.
        elements: of the arguments for which it differs; all others are zero.
        rounding: of what is equal in real arithmetic, an op whose rounding differs, and its place.
    """

    status: Status
    output: str = ""
    why: str = ""
    counterexample: Mapping[str, int] = field(default_factory=dict[str, int])
    elements: tuple[ModelElement, ...] = ()
    rounding: str = ""

    def __str__(self) -> str:
        if self.status is Status.REAL:
            output = f": {self.output}" if self.output else ""
            return f"{self.status}{output}; rounding differs at {self.rounding}"
        sizes = ", ".join(f"{name}={value}" for name, value in self.counterexample.items())
        return ": ".join(part for part in (self.status, self.output, self.why or sizes) if part)


PROVED = Proof(Status.PROVED)
# The beginning of the text on a counterexample that differs by rounding only.
ROUNDING_ONLY = "equal without rounding"


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
        return len(self.having(Status.PROVED))

    @property
    def real(self) -> int:
        """Number of programs that are proved equal in real arithmetic only."""
        return len(self.having(Status.REAL))

    def having(self, status: Status) -> dict[str, Proof]:
        """The programs with this status."""
        return {name: proof for name, proof in self.programs.items() if proof.status is status}

    def disputed(self, reasons: Mapping[str, str]) -> PassProof:
        """Proofs that do not stand beside a counterexample: those of some programs are undecided.

        A counterexample by rounding leaves what is equal in real arithmetic as it is.

        Args:
            reasons: by program, the counterexample that was found.
        """
        made = dict(self.programs)
        for name, why in reasons.items():
            status = made[name].status
            real = status is Status.REAL and not why.startswith(ROUNDING_ONLY)
            if status is Status.PROVED or real:
                made[name] = Proof(Status.UNDECIDED, why=why)
        return PassProof(made)

    @property
    def first(self) -> tuple[str, Proof] | None:
        """The first program that is not proved, the most serious first."""
        for status in (Status.REFUTED, Status.NOT_CONFIRMED, Status.UNDECIDED, Status.REAL):
            for name, proof in self.programs.items():
                if proof.status is status:
                    return name, proof
        return None
