"""The loop of speculation with trees: propose, verify in one launch, accept a path, move it.

A step verifies the last token of each row and the other nodes of its tree. Each row accepts by
itself and gets 1 to d + 1 tokens of a tree of depth d. Cache entries of the accepted nodes move to
the slots after node 0's; the cache ends after the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY_TREE
from graphgen.runtime.generation import (
    Clock,
    GenerationRequest,
    OnToken,
    Row,
    append_tokens,
    decode_step,
    tokens_left,
)
from graphgen.runtime.session.row_results import RowResults
from graphgen.runtime.session.session import Session, reserve_blocks
from graphgen.runtime.session.step_call import Ints, packed
from graphgen.runtime.speculation.accept import accept_tree
from graphgen.runtime.speculation.acceptance_counts import AcceptanceCounts
from graphgen.runtime.speculation.proposal import SpeculativeRow
from graphgen.runtime.speculation.tree_proposal import AcceptedPath, TreeProposal, TreeProposer


def check_tree_programs(session: Session, nodes: int) -> None:
    """Refuse programs that verify trees of fewer than ``nodes`` nodes (GG0705)."""
    verified = session.table.tree_nodes
    if verified < nodes:
        raise GraphgenError(
            "GG0705",
            f"these programs verify trees of {verified} nodes, not {nodes}",
            help=f"compile with tree_nodes={nodes}, for example into another --artifact",
        )


class TreeSpeculator:
    """Decodes with trees of proposals.

    Args:
        proposer: gives the trees.
        nodes: S, nodes of a tree that a step verifies: a row's last token and up to S - 1
            proposals.

    Attributes:
        phase: of the programs that verify.
        counts: since the speculator was made; the places of a path, not of the nodes.

    Raises:
        GraphgenError: GG0705 for fewer than two nodes.
    """

    phase = VERIFY_TREE

    def __init__(self, proposer: TreeProposer, nodes: int) -> None:
        if nodes < 2:
            raise GraphgenError(
                "GG0705",
                f"a tree of {nodes} nodes leaves no token to propose",
                help="give 2 nodes or more: the last token, and those proposed",
            )
        self.proposer = proposer
        self.length = nodes
        self.counts = AcceptanceCounts()

    def decode(
        self,
        session: Session,
        rows: list[Row],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> Iterator[float]:
        """Decode until every row is done; yields the seconds of each step.

        Raises:
            GraphgenError: GG0705 for programs that verify fewer nodes, GG0304 for caches whose
                slots cannot be moved.
        """
        check_tree_programs(session, self.length)
        # Makes the program of moves, or refuses the caches.
        session.move_slots((), ())
        self.proposer.start()
        while any(not row.finish for row in rows):
            with Clock(session) as clock:
                self._step(session, rows, request, on_token)
            yield clock.seconds

    def _step(
        self,
        session: Session,
        rows: list[Row],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> None:
        left = [tokens_left(session, row, request) for row in rows]
        wanted = [
            SpeculativeRow([*r.prompt, *r.tokens], r.how, n, len(r.tokens), max(most - 1, 0))
            for n, (r, most) in enumerate(zip(rows, left, strict=True))
        ]
        room = node_room(session, [n for n, most in enumerate(left) if most], self.length)
        trees = [
            tree.pruned(row.wanted, room.get(row.number, 1))
            for tree, row in zip(self.proposer.propose(wanted), wanted, strict=True)
        ]
        self.counts.launches += 1
        if not self.proposer.observes and not any(tree.tokens for tree in trees):
            for row in rows:
                if not row.finish:
                    self.counts.note(0, 1)
            decode_step(session, rows, request, on_token)
            return
        active = [number for number, row in enumerate(rows) if not row.finish]
        given = [[rows[n].tokens[-1], *trees[n].tokens] for n in active]
        made = verify_trees(session, active, given, [trees[n] for n in active])
        paths = [self._accepted(made, place, trees[n], wanted[n]) for place, n in enumerate(active)]
        self._keep(session, rows, paths, request, on_token)
        self.proposer.observe(paths, made.outputs)

    def _accepted(
        self, made: RowResults, place: int, tree: TreeProposal, row: SpeculativeRow
    ) -> AcceptedPath:
        logits = made.token_logits[place, : len(tree.tokens) + 1]
        nodes, tokens = accept_tree(logits, tree, row)
        self.counts.note(max(tree.depths), len(tokens))
        return AcceptedPath(row.number, nodes, tokens)

    def _keep(
        self,
        session: Session,
        rows: list[Row],
        paths: Sequence[AcceptedPath],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> None:
        """Append the tokens of each row, and keep the path of its cache."""
        lengths = session.lengths.copy()
        moves: dict[int, list[int]] = {}
        for path in paths:
            row = rows[path.number]
            start = len(row.prompt) + len(row.tokens) - 1
            held = append_tokens(session, rows, path.number, path.tokens, request, on_token)
            lengths[path.number] = held
            kept = path.nodes[: held - start]
            if [*kept] != [*range(len(kept))]:
                moves[path.number] = [start + node for node in kept[1:]]
        session.take_back(lengths)
        if moves:
            session.move_slots([*moves], [*moves.values()])


def verify_trees(
    session: Session,
    seq_ids: Sequence[int],
    tokens: Sequence[Sequence[int]],
    trees: Sequence[TreeProposal],
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
