"""Heads of Medusa propose a tree: their guesses after the last accepted node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphgen.models.medusa import MEDUSA_TOKENS
from graphgen.runtime.speculation.medusa.medusa_tree import MedusaTree
from graphgen.runtime.speculation.proposal import SpeculativeRow
from graphgen.runtime.speculation.tree.tree_proposal import AcceptedPath, TreeProposal


class MedusaProposer:
    """Proposes the guesses of heads that programs return as ``medusa_tokens``.

    The first step of a row has no guesses: it verifies the row's last token alone, and gives those
    of the next one. Guesses are not drawn, so that drawn tokens accept one with its probability.

    Args:
        tree: of every row and step.
    """

    observes = True

    def __init__(self, tree: MedusaTree) -> None:
        self.tree = tree
        self._guesses: dict[int, npt.NDArray[np.generic]] = {}

    def start(self) -> None:
        """Forget all guesses."""
        self._guesses = {}

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[TreeProposal]:
        """The tree of each row."""
        return [self._tree(self._guesses.get(row.number)) for row in rows]

    def _tree(self, guesses: npt.NDArray[np.generic] | None) -> TreeProposal:
        if guesses is None:
            return TreeProposal()
        tokens = [int(guesses[len(path) - 1, path[-1]]) for path in self.tree.paths]
        return TreeProposal(tokens, self.tree.parents)

    def observe(
        self, paths: Sequence[AcceptedPath], outputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """Keep the guesses s32 [H,K] after the last accepted node of each row."""
        made = outputs[MEDUSA_TOKENS]
        for place, path in enumerate(paths):
            self._guesses[path.number] = made[place, path.nodes[-1]].copy()
