"""A draft of EAGLE proposes trees, whose nodes it reads in one launch a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.runtime.launching.feature_log import FEATURES
from graphgen.runtime.sampling.log_probabilities import log_softmax
from graphgen.runtime.speculation.eagle.draft_tree import GrowingTree, Logs, TreePlan
from graphgen.runtime.speculation.eagle.eagle_draft import NEXT_FEATURES, EagleDraft, Place
from graphgen.runtime.speculation.proposal import SpeculativeRow
from graphgen.runtime.speculation.tree.tree_proposal import AcceptedPath, TreeProposal
from graphgen.runtime.step_call import Floats


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

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[TreeProposal]:
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
        return [trees.get(row.number, TreeProposal()) for row in rows]

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
