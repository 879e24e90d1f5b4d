"""The interface of a proposer of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from graphgen.runtime.sampling.processors import Scores
from graphgen.runtime.sampling.sampling_settings import Sampling


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that may follow one row.

    Attributes:
        tokens: n token ids, each after those before it.
        probabilities: for each the distribution float64 [V] that it was drawn from; empty where
            the tokens were not drawn, so that each had probability 1.
    """

    tokens: Sequence[int] = ()
    probabilities: Sequence[Scores] = field(default=())


@dataclass(frozen=True, slots=True)
class SpeculativeRow:
    """One sequence, and what is wanted for it.

    Attributes:
        sequence: all tokens so far, prompt first.
        how: the sampling settings of the row.
        number: of the sequence, for its random numbers: its place in a batch, 0 for requests that
            are served. Its row of a cache is its place among the rows that a proposer is given.
        made: tokens generated so far.
        wanted: largest number of tokens to propose; 0 for a row that takes no part.
    """

    sequence: Sequence[int]
    how: Sampling
    number: int
    made: int
    wanted: int


class Proposer(Protocol):
    """Proposes tokens for the rows of a batch."""

    def start(self) -> None:
        """Begin new sequences in all rows."""
        ...

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """Tokens that may follow each row, at most as many as it wants."""
        ...


@runtime_checkable
class WarmedProposer(Protocol):
    """A proposer with programs of its own."""

    def warm_up(self) -> None:
        """Compile or load every program; no row changes."""
        ...
