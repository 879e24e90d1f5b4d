"""Trees of tokens that a draft of EAGLE grows, level by level.

A static tree has the same shape at each step: the paths of ranks that EAGLE (arXiv 2401.15077) and
Medusa write down. A dynamic one follows the draft's own confidence (EAGLE-2, arXiv 2406.16858): of
each level the ``top`` nodes with the largest joint probability get ``top`` children each, and of
all nodes those with the largest joint probability are verified. A child is never more probable than
its parent, so that those form a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphgen.runtime.speculation.medusa.medusa_tree import MedusaTree
from graphgen.runtime.speculation.tree.tree_proposal import TreeProposal

# float [V]: the logarithms of a draft's probabilities.
Logs = npt.NDArray[np.floating]


@dataclass(slots=True)
class GrowingTree:
    """Nodes 1 to n in the order in which they were made; node 0 is the row's last token.

    Attributes:
        tokens: of each.
        parents: of each the number of an earlier node.
        scores: of each the logarithm of its joint probability.
    """

    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    scores: list[float] = field(default_factory=list[float])

    def add(self, parent: int, token: int, log: float) -> int:
        """The number of a new node whose token has the probability ``exp(log)``."""
        before = self.scores[parent - 1] if parent else 0.0
        self.tokens.append(token)
        self.parents.append(parent)
        self.scores.append(before + log)
        return len(self.tokens)

    def best(self, nodes: Sequence[int], count: int) -> list[int]:
        """The ``count`` most probable of some nodes, in order of their numbers."""
        ranked = sorted(nodes, key=lambda node: -self.scores[node - 1])
        return sorted(ranked[:count])

    def proposal(self, nodes: Sequence[int]) -> TreeProposal:
        """The tree of some nodes, in order of their numbers, with all of their ancestors."""
        number = {0: 0, **{node: place for place, node in enumerate(nodes, 1)}}
        return TreeProposal(
            [self.tokens[node - 1] for node in nodes],
            [number[self.parents[node - 1]] for node in nodes],
        )


class TreePlan(Protocol):
    """The growth of a tree."""

    @property
    def depth(self) -> int:
        """Largest number of tokens on a path."""
        ...

    @property
    def expanded(self) -> int:
        """Largest number of nodes that get children, node 0 not counted."""
        ...

    def grow(self, tree: GrowingTree, level: int, logs: dict[int, Logs]) -> list[int]:
        """Add the nodes of a level.

        Args:
            tree: so far.
            level: 1 for the children of node 0.
            logs: of each node that gets children, after it.

        Returns:
            The new nodes that get children at the next level, in order.
        """
        ...

    def chosen(self, tree: GrowingTree) -> TreeProposal:
        """The nodes to verify."""
        ...


def _best_tokens(logs: Logs, count: int) -> list[int]:
    """The most probable tokens, the best first; equal ones by their numbers."""
    return np.argsort(-logs, kind="stable")[:count].tolist()


@dataclass(frozen=True, slots=True)
class DynamicTree:
    """The tree of EAGLE-2.

    Attributes:
        nodes: S, nodes that the target verifies, its last token included.
        depth: largest number of tokens on a path.
        top: children of a node, and nodes of a level that get some.
    """

    nodes: int = 24
    depth: int = 4
    top: int = 4

    @property
    def expanded(self) -> int:
        """See :class:`TreePlan`."""
        return self.top * (self.depth - 1)

    def grow(self, tree: GrowingTree, level: int, logs: dict[int, Logs]) -> list[int]:
        """See :class:`TreePlan`."""
        made = [
            tree.add(parent, token, float(after[token]))
            for parent, after in logs.items()
            for token in _best_tokens(after, self.top)
            if np.isfinite(after[token])
        ]
        return tree.best(made, self.top) if level < self.depth else []

    def chosen(self, tree: GrowingTree) -> TreeProposal:
        """See :class:`TreePlan`."""
        every = range(1, len(tree.tokens) + 1)
        return tree.proposal(tree.best(every, self.nodes - 1))


@dataclass(frozen=True, slots=True)
class StaticTree:
    """The tree of a list of paths: child r of a node is its best token but r.

    Attributes:
        shape: its nodes, by depth.
    """

    shape: MedusaTree

    @property
    def nodes(self) -> int:
        """S, with the last token of a row."""
        return self.shape.nodes

    @property
    def depth(self) -> int:
        """See :class:`TreePlan`."""
        return self.shape.depth

    @property
    def expanded(self) -> int:
        """See :class:`TreePlan`."""
        return len({parent for parent in self.shape.parents if parent})

    def grow(self, tree: GrowingTree, level: int, logs: dict[int, Logs]) -> list[int]:
        """See :class:`TreePlan`."""
        ranked = {n: _best_tokens(after, 1 + self._last(n)) for n, after in logs.items()}
        made: list[int] = []
        for path, parent in zip(self.shape.paths, self.shape.parents, strict=True):
            if len(path) == level:
                token = ranked[parent][path[-1]]
                made.append(tree.add(parent, token, float(logs[parent][token])))
        inner = set(self.shape.parents)
        return [node for node in made if node in inner]

    def _last(self, parent: int) -> int:
        """The largest rank among the children of a node."""
        pairs = zip(self.shape.paths, self.shape.parents, strict=True)
        return max(path[-1] for path, above in pairs if above == parent)

    def chosen(self, tree: GrowingTree) -> TreeProposal:
        """See :class:`TreePlan`."""
        return tree.proposal(range(1, len(tree.tokens) + 1))
