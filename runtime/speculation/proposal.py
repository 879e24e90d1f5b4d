"""The interface of a proposer: trees of tokens, of which a line is one with a single path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.exec.speculative_step import ancestors, depths
from graphgen.runtime.sampling.processors import Scores
from graphgen.runtime.sampling.sampling_settings import Sampling


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that may follow one row, as a tree. Node 0 is the row's last token.

    Attributes:
        tokens: n token ids, of nodes 1 to n, parents before children.
        probabilities: for each the distribution float64 [V] that it was drawn from, given that the
            siblings before it were refused; empty where the tokens were not drawn, so that each had
            probability 1.
        parents: of each the number of an earlier node; ``None`` for a line, where it is the one
            before.
    """

    tokens: Sequence[int] = ()
    probabilities: Sequence[Scores] = field(default=())
    parents: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for node, parent in enumerate(self.parents or (), 1):
            if not 0 <= parent < node:
                raise GraphgenError(
                    "GG0705",
                    f"node {node} of a tree has the parent {parent}",
                    help="write parents before children; the row's last token is node 0",
                )
        if self.parents is not None and len(self.tokens) != len(self.parents):
            raise GraphgenError(
                "GG0705", f"{len(self.tokens)} tokens and {len(self.parents)} parents of a tree"
            )

    @property
    def edges(self) -> Sequence[int]:
        """Of nodes 1 to n the number of the parent, also of a line."""
        return range(len(self.tokens)) if self.parents is None else self.parents

    @property
    def depths(self) -> list[int]:
        """The number of tokens between node 0 and each node, itself included; 0 for node 0."""
        return depths([-1, *self.edges])

    @property
    def ancestors(self) -> npt.NDArray[np.int32]:
        """s32 [n+1,n+1]: 1 where a node reads another one."""
        return ancestors([-1, *self.edges])

    def children(self) -> list[list[int]]:
        """The children of each node, in order."""
        made: list[list[int]] = [[] for _ in range(len(self.tokens) + 1)]
        for node, parent in enumerate(self.edges, 1):
            made[parent].append(node)
        return made

    def pruned(self, depth: int, nodes: int) -> Proposal:
        """The tree without what is deeper, and without its last nodes.

        Args:
            depth: largest number of tokens on a path.
            nodes: largest number of nodes, node 0 included.
        """
        kept = [n for n, at in enumerate(self.depths) if at <= depth][: max(nodes, 1)]
        if len(kept) == len(self.tokens) + 1:
            return self
        number = {node: place for place, node in enumerate(kept)}
        rest = [node - 1 for node in kept[1:]]
        drawn = [self.probabilities[n] for n in rest] if self.probabilities else ()
        parents = None if self.parents is None else [number[self.parents[n]] for n in rest]
        return Proposal([self.tokens[n] for n in rest], drawn, parents)


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


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """The part of one row in a step.

    Attributes:
        number: the row's place in the batch.
        nodes: the accepted nodes from the root on, node 0 first.
        tokens: those of the nodes after node 0, and one of the target's own.
    """

    number: int
    nodes: Sequence[int]
    tokens: Sequence[int]


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


@runtime_checkable
class ObservingProposer(Protocol):
    """A proposer that follows what the target accepts."""

    @property
    def observes(self) -> bool:
        """True for one that proposes by the target's outputs, of steps without proposals too."""
        ...

    def observe(
        self, paths: Sequence[AcceptedPath], outputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """See what a step gave.

        Args:
            paths: of the rows that took part, in order.
            outputs: of the step by name; those of each token [n,S,...], n the rows in ``paths``.
        """
        ...
