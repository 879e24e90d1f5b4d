"""The interface of a proposer of token trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.exec.speculative_step import ancestors, depths
from graphgen.runtime.sampling.processors import Scores
from graphgen.runtime.speculation.proposal import SpeculativeRow


@dataclass(frozen=True, slots=True)
class TreeProposal:
    """Tokens that may follow one row, as a tree. Node 0 is the row's last token.

    Attributes:
        tokens: n token ids, of nodes 1 to n, parents before children.
        parents: of each the number of an earlier node.
        probabilities: for each the distribution float64 [V] that it was drawn from, given that the
            siblings before it were refused; empty where the tokens were not drawn, so that each had
            probability 1.
    """

    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()
    probabilities: Sequence[Scores] = field(default=())

    def __post_init__(self) -> None:
        for node, parent in enumerate(self.parents, 1):
            if not 0 <= parent < node:
                raise GraphgenError(
                    "GG0705",
                    f"node {node} of a tree has the parent {parent}",
                    help="write parents before children; the row's last token is node 0",
                )
        if len(self.tokens) != len(self.parents):
            raise GraphgenError(
                "GG0705", f"{len(self.tokens)} tokens and {len(self.parents)} parents of a tree"
            )

    @property
    def depths(self) -> list[int]:
        """The number of tokens between node 0 and each node, itself included; 0 for node 0."""
        return depths([-1, *self.parents])

    @property
    def ancestors(self) -> npt.NDArray[np.int32]:
        """s32 [n+1,n+1]: 1 where a node reads another one."""
        return ancestors([-1, *self.parents])

    def children(self) -> list[list[int]]:
        """The children of each node, in order."""
        made: list[list[int]] = [[] for _ in range(len(self.tokens) + 1)]
        for node, parent in enumerate(self.parents, 1):
            made[parent].append(node)
        return made

    def pruned(self, depth: int, nodes: int) -> TreeProposal:
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
        parents = [number[self.parents[n]] for n in rest]
        return TreeProposal([self.tokens[n] for n in rest], parents, drawn)


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


class TreeProposer(Protocol):
    """Proposes trees for the rows of a batch."""

    @property
    def observes(self) -> bool:
        """True for one that proposes by the target's outputs, of steps without proposals too."""
        ...

    def start(self) -> None:
        """Begin new sequences in all rows."""
        ...

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[TreeProposal]:
        """Trees that may follow each row, no path longer than the row wants."""
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
