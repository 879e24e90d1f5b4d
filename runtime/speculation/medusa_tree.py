"""Trees of Medusa, written as the paths of their nodes.

A path ``[a, b, ...]`` is the node whose token is guess b of head 1 after guess a of head 0, each
counted from the best one on. ``[[0], [1], [0, 0]]`` has four nodes with the last token of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.limits import JSON_BYTES
from graphgen.models.medusa import BEST, MEDUSA_TOKENS
from graphgen.runtime.speculation.proposal import AcceptedPath, Proposal, SpeculativeRow

# A default tree has the paths whose ranks, counted from 1, have a product of this at most.
_LARGEST_PRODUCT = 4
_HELP = "a tree is a list of paths, such as [[0], [1], [0, 0]], as medusa_mc_sim_7b_63.json has"


@dataclass(frozen=True, slots=True)
class MedusaTree:
    """A tree, its nodes by depth and then by guesses.

    Attributes:
        paths: of nodes 1 to n.
        parents: of each the number of its parent; 0 for the last token of a row.
    """

    paths: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """S, with the last token of a row."""
        return len(self.paths) + 1

    @property
    def depth(self) -> int:
        """Heads that the tree takes guesses of."""
        return max(map(len, self.paths))


def medusa_tree(choices: object, heads: int) -> MedusaTree:
    """The tree of a list of paths.

    Args:
        choices: lists of numbers, in any order.
        heads: number of heads.

    Raises:
        GraphgenError: GG0705 for what is no such list, a path that is there twice or whose parent
            is not, and guesses or heads that do not exist.
    """
    paths = sorted(_paths(choices), key=lambda path: (len(path), path))
    number = {path: node for node, path in enumerate(paths, 1)}
    if len(number) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise _refused(f"the path {list(twice)} is there twice")
    for path in paths:
        if len(path) > heads:
            raise _refused(f"the path {list(path)} needs {len(path)} heads, and there are {heads}")
        if len(path) > 1 and path[:-1] not in number:
            raise _refused(
                f"the path {list(path)} goes through {list(path[:-1])}, which is missing"
            )
    return MedusaTree(tuple(paths), tuple([number.get(path[:-1], 0) for path in paths]))


def read_tree(path: Path, heads: int) -> MedusaTree:
    """The tree in a file of JSON.

    Raises:
        GraphgenError: GG0705 for a file that cannot be read, and as for :func:`medusa_tree`.
    """
    return medusa_tree(read_choices(path), heads)


def read_choices(path: Path) -> object:
    """The JSON in the file of a tree (GG0705)."""
    try:
        return parse_json(read_regular(path, JSON_BYTES))
    except (OSError, ValueError) as error:
        raise _refused(f"{path} cannot be read: {error}") from None


def default_tree(heads: int) -> MedusaTree:
    """A tree of the likely paths: fewer guesses the deeper, and the later, they are."""
    ranks = range(1, _LARGEST_PRODUCT + 1)
    paths = [
        [rank - 1 for rank in path]
        for depth in range(1, heads + 1)
        for path in product(ranks, repeat=depth)
        if prod(path) <= _LARGEST_PRODUCT
    ]
    return medusa_tree(paths, heads)


def _paths(choices: object) -> list[tuple[int, ...]]:
    given = cast("list[object]", choices) if isinstance(choices, list) else []
    if not given:
        raise _refused(f"a tree of {choices!r} has no path")
    made: list[tuple[int, ...]] = []
    for path in given:
        guesses = cast("Sequence[object]", path) if isinstance(path, list | tuple) else ()
        known = [g for g in guesses if type(g) is int and 0 <= g < BEST]
        if not guesses or len(known) < len(guesses):
            raise _refused(f"{path!r} is not a path: its numbers are 0 to {BEST - 1}")
        made.append(tuple(known))
    return made


def _refused(what: str) -> GraphgenError:
    return GraphgenError("GG0705", f"medusa_tree: {what}", help=_HELP)


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

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """The tree of each row."""
        return [self._tree(self._guesses.get(row.number)) for row in rows]

    def _tree(self, guesses: npt.NDArray[np.generic] | None) -> Proposal:
        if guesses is None:
            return Proposal()
        tokens = [int(guesses[len(path) - 1, path[-1]]) for path in self.tree.paths]
        return Proposal(tokens, parents=self.tree.parents)

    def observe(
        self, paths: Sequence[AcceptedPath], outputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """Keep the guesses s32 [H,K] after the last accepted node of each row."""
        made = outputs[MEDUSA_TOKENS]
        for place, path in enumerate(paths):
            self._guesses[path.number] = made[place, path.nodes[-1]].copy()
