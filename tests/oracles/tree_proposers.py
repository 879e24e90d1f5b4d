"""Proposers of trees whose quality is known: right ones, random ones, and traps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphgen.runtime.generation import Completion
from graphgen.runtime.speculation.proposal import AcceptedPath, Proposal, SpeculativeRow

VOCABULARY = 131


class KnownTrees:
    """Proposes trees of a kind around the tokens that the target gives.

    Attributes:
        answers: of each row, the tokens that the target gives.
        kind: ``right`` has the right path among wrong siblings, at changing places; ``random`` has
            random tokens, some of them right; ``trap`` has the right tokens off a path
            from the root, and a right token twice.
        nodes: of a tree, node 0 included.
        seen: the paths that were accepted.
    """

    observes = False

    def __init__(self, answers: Sequence[Completion], kind: str, nodes: int, seed: int = 0) -> None:
        self.answers = [answer.tokens for answer in answers]
        self.kind, self.nodes = kind, nodes
        self.rng = np.random.default_rng(seed)
        self.seen: list[AcceptedPath] = []

    def start(self) -> None:
        pass

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        return [self._tree(row) for row in rows]

    def observe(
        self, paths: Sequence[AcceptedPath], outputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        self.seen += paths

    def _tree(self, row: SpeculativeRow) -> Proposal:
        right = [*self.answers[row.number][row.made :], *[0] * self.nodes]
        tokens, parents = list[int](), list[int]()
        at, depth = 0, 0
        for node in range(1, self.nodes):
            if self.kind == "right":
                # A wrong sibling or cousin, or the next of the path.
                good = bool(self.rng.integers(2)) or node + 2 > self.nodes
                parents.append(at if good else int(self.rng.integers(max(at - 1, 0), at + 1)))
                tokens.append(right[depth] if good else (right[depth] + 1) % VOCABULARY)
                at, depth = (node, depth + 1) if good else (at, depth)
            elif self.kind == "random":
                parents.append(int(self.rng.integers(0, node)))
                known = right[int(self.rng.integers(0, 3))]
                tokens.append(known if self.rng.integers(2) else int(self.rng.integers(VOCABULARY)))
            else:
                # Right tokens under a wrong one, and the first right one twice at the root.
                parents.append(0 if node in (1, 3, 4) else node - 1 if node == 2 else 1)
                wrong = (right[0] + 1) % VOCABULARY
                tokens.append(wrong if node == 1 else right[0] if node in (3, 4) else right[1])
        return Proposal(tokens, parents=parents)
