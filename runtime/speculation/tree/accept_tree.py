"""Acceptance of a path of a tree: the target's own tokens, or draws from its own distribution.

Greedy: the longest path of tokens that the target takes. Drawn: speculative sampling with several
candidates (Miao et al. 2023, arXiv 2305.09781, algorithm 2; Yang et al. 2024, arXiv 2401.06706).
Siblings are tried one after the other. A token x that was drawn from q is accepted with probability
min(1, p(x) / q(x)); after a refused one the next is compared with max(p - q, 0), normalized, and
after the last one the token is drawn from what is left. By induction over the siblings the tokens
are distributed as draws from p, however q depends on earlier siblings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphgen.eval.numerical.rules_acceptance import accepts, residual
from graphgen.runtime.sampling.choose_token import ACCEPTING, uniform
from graphgen.runtime.sampling.processors import probabilities, process
from graphgen.runtime.speculation.accept import distribution_of, drawn_from, own_token
from graphgen.runtime.speculation.proposal import SpeculativeRow
from graphgen.runtime.speculation.tree.tree_proposal import TreeProposal

# The number of kinds of random numbers of a step; sibling k has kind ACCEPTING + 3 k.
_KINDS = 3


def accept_tree(
    logits: npt.NDArray[np.floating], proposal: TreeProposal, row: SpeculativeRow
) -> tuple[list[int], list[int]]:
    """The accepted nodes of a row and its next tokens.

    Args:
        logits: float [n + 1,V] of the target, after each node.
        proposal: n tokens.
        row: the sequence before them; its last token is node 0.

    Returns:
        The nodes from the root on, node 0 first, and as many tokens: those of the nodes after it,
        and one of the target.

    Raises:
        GraphgenError: GG0705 if the filters leave no token.
    """
    children = proposal.children()
    drawn = row.how.do_sample and not row.how.deterministic
    nodes, made = [0], list[int]()
    while True:
        candidates = children[nodes[-1]]
        choose = _drawn if drawn and candidates else _chosen
        token, node = choose(logits[nodes[-1]], proposal, candidates, row, made)
        made.append(token)
        if node is None:
            return nodes, made
        nodes.append(node)


def _chosen(
    logits: npt.NDArray[np.floating],
    proposal: TreeProposal,
    candidates: Sequence[int],
    row: SpeculativeRow,
    made: Sequence[int],
) -> tuple[int, int | None]:
    """The token that the target takes or draws, and the child that has it."""
    token = own_token(logits, row, made)
    return token, next((n for n in candidates if proposal.tokens[n - 1] == token), None)


def _drawn(
    logits: npt.NDArray[np.floating],
    proposal: TreeProposal,
    candidates: Sequence[int],
    row: SpeculativeRow,
    made: Sequence[int],
) -> tuple[int, int | None]:
    """The first child that is accepted, or a draw from what all refused ones leave."""
    scores = process(logits, [*row.sequence, *made], row.how)
    if not np.isfinite(scores.max()):
        # It raises, as nothing is left to draw from.
        return _chosen(logits, proposal, (), row, made)
    left, step = probabilities(scores), row.made + len(made)
    for place, node in enumerate(candidates):
        token = proposal.tokens[node - 1]
        drafted = distribution_of(proposal, node - 1, len(left))
        number = uniform(row.how.seed, row.number, step, ACCEPTING + _KINDS * place)
        if accepts(number, float(left[token]), float(drafted[token])):
            return token, node
        left = residual(left, drafted)
        left = left / left.sum()
    return drawn_from(left, row, step), None
