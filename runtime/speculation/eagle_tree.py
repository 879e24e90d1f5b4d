"""A draft of EAGLE proposes trees, whose nodes it reads in one launch a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from graphgen.runtime.sampling.processors import log_softmax
from graphgen.runtime.session.feature_log import FEATURES
from graphgen.runtime.session.step_call import Floats
from graphgen.runtime.speculation.eagle_draft import NEXT_FEATURES, EagleDraft, Place
from graphgen.runtime.speculation.medusa_tree import MedusaTree
from graphgen.runtime.speculation.proposal import AcceptedPath, Proposal, SpeculativeRow

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

    def proposal(self, nodes: Sequence[int]) -> Proposal:
        """The tree of some nodes, in order of their numbers, with all of their ancestors."""
        number = {0: 0, **{node: place for place, node in enumerate(nodes, 1)}}
        return Proposal(
            [self.tokens[node - 1] for node in nodes],
            parents=[number[self.parents[node - 1]] for node in nodes],
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

    def chosen(self, tree: GrowingTree) -> Proposal:
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

    def chosen(self, tree: GrowingTree) -> Proposal:
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

    def chosen(self, tree: GrowingTree) -> Proposal:
        """See :class:`TreePlan`."""
        return tree.proposal(range(1, len(tree.tokens) + 1))


@dataclass(slots=True)
class _RowTree:
    """The tree of one row while it grows.

    Attributes:
        tree: its nodes.
        places: of node 0 and of each node that gets children, what the draft gave after it.
        read: the nodes that the draft has read, in the order of its columns.
        room: nodes that the draft's cache has room for.
    """

    tree: GrowingTree
    places: dict[int, Place]
    room: int
    read: list[int] = field(default_factory=list[int])


class EagleTree:
    """Proposes trees by an EAGLE draft with programs that verify trees.

    The draft reads a tree as the target does: all nodes that get children in one launch, each
    with its ancestors, once a level.

    Args:
        draft: its session has programs of ``plan.expanded`` nodes.
        plan: the growth of a tree.
    """

    observes = True

    def __init__(self, draft: EagleDraft, plan: TreePlan) -> None:
        self.draft = draft
        self.plan = plan
        self._starts: dict[int, int] = {}

    def start(self) -> None:
        """See :meth:`EagleDraft.start`."""
        self.draft.start()

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """The tree of each row."""
        self._starts = {row.number: len(row.sequence) - 1 for row in rows}
        wanted = {row.number: row for row in rows if row.wanted and self._room(row) >= 0}
        first = self.draft.refresh(wanted)
        growing = {
            n: _RowTree(GrowingTree(), {0: p}, self._room(wanted[n])) for n, p in first.items()
        }
        fresh = {n: [0] for n in growing}
        for level in range(1, self.plan.depth + 1):
            for number, nodes in fresh.items():
                grown = growing[number]
                logs = {node: self._logs(grown.places[node]) for node in nodes}
                kept = self.plan.grow(grown.tree, level, logs)
                if level < min(self.plan.depth, wanted[number].wanted):
                    fits = len(grown.read) + len(kept) <= grown.room
                    grown.read += kept if fits else []
                    fresh[number] = kept if fits else []
                else:
                    fresh[number] = []
            fresh = {number: nodes for number, nodes in fresh.items() if nodes}
            if fresh:
                self._read({number: growing[number] for number in fresh})
        trees = {number: self.plan.chosen(grown.tree) for number, grown in growing.items()}
        return [trees.get(row.number, Proposal()) for row in rows]

    def _room(self, row: SpeculativeRow) -> int:
        """Nodes after the last place of a row that the draft's cache has room for."""
        return self.draft.session.limit - len(row.sequence) + 1

    def _logs(self, place: Place) -> Logs:
        """float64 [V]: the logarithms of the probabilities of what follows a place."""
        return log_softmax(self.draft.known(place.logits))

    def _read(self, growing: Mapping[int, _RowTree]) -> None:
        """Let the draft read the nodes that get children, each with what came before it."""
        session = self.draft.session
        ids = np.array(list(growing), np.int32)
        width = max(len(grown.read) for grown in growing.values())
        starts = [self._starts[number] for number in growing]
        lengths = session.lengths.copy()
        lengths[ids] = starts
        session.take_back(lengths)
        tokens = np.zeros((len(ids), width), np.int32)
        positions = np.full((len(ids), width), -1, np.int32)
        features = np.zeros((len(ids), width, self._width(growing)), np.float32)
        reads = np.tile(np.eye(width, dtype=np.int32), (len(ids), 1, 1))
        for place, grown in enumerate(growing.values()):
            count, mask = len(grown.read), _reads(grown)
            reads[place, :count, :count] = mask
            tokens[place, :count] = [grown.tree.tokens[node - 1] for node in grown.read]
            positions[place, :count] = starts[place] + mask.sum(1) - 1
            for column, node in enumerate(grown.read):
                features[place, column] = grown.places[grown.tree.parents[node - 1]].features
        made = session.step(tokens, positions, ids, features=features, ancestors=reads)
        states = cast("Floats", made.outputs[NEXT_FEATURES])
        for place, grown in enumerate(growing.values()):
            for column, node in enumerate(grown.read):
                logits = made.token_logits[place, column]
                grown.places[node] = Place(logits, states[place, column])

    def _width(self, growing: Mapping[int, _RowTree]) -> int:
        return len(next(iter(growing.values())).places[0].features)

    def observe(
        self, paths: Sequence[AcceptedPath], outputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """Keep the target's features of the accepted nodes of each row."""
        given = cast("Floats", outputs[FEATURES])
        for place, path in enumerate(paths):
            start = self._starts[path.number]
            self.draft.log.put(path.number, start, given[place, [*path.nodes]])


def _reads(grown: _RowTree) -> npt.NDArray[np.int32]:
    """s32 [n,n]: 1 where a node that the draft reads has another one as an ancestor, or itself."""
    column = {node: place for place, node in enumerate(grown.read)}
    made = np.eye(len(column), dtype=np.int32)
    for place, node in enumerate(grown.read):
        # Nodes of the first level have no parent among those: it is a place of the cache.
        above = column.get(grown.tree.parents[node - 1])
        if above is not None:
            made[place] |= made[above]
    return made
