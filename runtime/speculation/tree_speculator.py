"""Speculation with trees: a step accepts one path of each row's tree.

A step verifies the last token of each row and the other nodes of its tree. Each row accepts by
itself and gets 1 to d + 1 tokens of a tree of depth d. Cache entries of the accepted nodes move to
the slots after node 0's; the cache ends after the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY_TREE
from graphgen.runtime.session.row_results import RowResults
from graphgen.runtime.session.session import Session, reserve_blocks
from graphgen.runtime.session.step_call import Ints, packed
from graphgen.runtime.speculation.proposal import Proposal, Proposer, SpeculativeRow
from graphgen.runtime.speculation.speculator import Speculator


def check_tree_programs(session: Session, nodes: int) -> None:
    """Refuse programs that verify trees of fewer than ``nodes`` nodes (GG0705)."""
    verified = session.table.tree_nodes
    if verified < nodes:
        raise GraphgenError(
            "GG0705",
            f"these programs verify trees of {verified} nodes, not {nodes}",
            help=f"compile with tree_nodes={nodes}, for example into another --artifact",
        )


class TreeSpeculator(Speculator):
    """Decodes with trees of proposals.

    Args:
        proposer: gives the trees.
        nodes: S, nodes of a tree that a step verifies: a row's last token and up to S - 1
            proposals.

    Raises:
        GraphgenError: GG0705 for fewer than two nodes.
    """

    phase = VERIFY_TREE

    def __init__(self, proposer: Proposer, nodes: int) -> None:
        super().__init__(proposer, nodes)

    def _check_length(self) -> None:
        if self.length < 2:
            raise GraphgenError(
                "GG0705",
                f"a tree of {self.length} nodes leaves no token to propose",
                help="give 2 nodes or more: the last token, and those proposed",
            )

    def begin(self, session: Session) -> None:
        """Begin with empty rows.

        Raises:
            GraphgenError: GG0705 for programs that verify fewer nodes, GG0304 for caches whose
                slots cannot be moved.
        """
        check_tree_programs(session, self.length)
        # Makes the program of moves, or refuses the caches.
        session.move_slots((), ())
        self.proposer.start()

    def _fitting(
        self,
        session: Session,
        active: Sequence[int],
        rows: Sequence[SpeculativeRow],
        proposals: Sequence[Proposal],
    ) -> Sequence[Proposal]:
        room = node_room(session, active, self.length)
        return [
            tree.pruned(row.wanted, room.get(row.number, 1))
            for tree, row in zip(proposals, rows, strict=True)
        ]

    def _verify(
        self,
        session: Session,
        numbers: Sequence[int],
        tokens: Sequence[Sequence[int]],
        proposals: Sequence[Proposal],
    ) -> RowResults:
        return verify_trees(session, numbers, tokens, proposals)


def verify_trees(
    session: Session,
    seq_ids: Sequence[int],
    tokens: Sequence[Sequence[int]],
    trees: Sequence[Proposal],
) -> RowResults:
    """Append the nodes of trees to rows of the cache, node 0 at the length of each.

    Args:
        session: with programs that verify trees.
        seq_ids: n rows of the cache.
        tokens: of each row those of its nodes, node 0 first.
        trees: of each row.
    """
    starts = session.lengths[[*seq_ids]].tolist()
    given, positions = packed(tokens, starts)
    reads = np.zeros((*positions.shape, positions.shape[1]), np.int32)
    reads[:, range(positions.shape[1]), range(positions.shape[1])] = 1
    for place, tree in enumerate(trees):
        count = len(tree.tokens) + 1
        positions[place, :count] = starts[place] + np.array(tree.depths, np.int32)
        reads[place, :count, :count] = tree.ancestors
    return session.step(given, positions, [*seq_ids], ancestors=reads)


def node_room(session: Session, numbers: Sequence[int], nodes: int) -> dict[int, int]:
    """The number of nodes of each row that its cache has slots for, at most ``nodes``.

    Rows of a paged cache get blocks for all nodes where there are enough.
    """
    held: Ints = session.lengths
    room = {n: min(nodes, session.limit - int(held[n])) for n in numbers}
    blocks = session.blocks
    if blocks is None:
        return room
    columns = {n: int((blocks.table[n] >= 0).sum()) * blocks.block for n in numbers}
    needs = {n: max(columns[n], int(held[n]) + room[n]) for n in numbers}
    try:
        reserve_blocks(session, needs)
    except GraphgenError:
        return {n: min(room[n], columns[n] - int(held[n])) for n in numbers}
    return room
