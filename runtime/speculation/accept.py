"""Acceptance of proposed tokens: the target's own tokens, or draws from its own distribution.

Greedy: a proposal is accepted while it is the token that the target takes. Drawn: speculative
sampling (Leviathan et al. 2022, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318). A token x
that was drawn from q is accepted with probability min(1, p(x) / q(x)); the first refused one is
replaced by a draw from max(p - q, 0), normalized. The tokens are then distributed as draws from p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphgen.eval.speculative_sampling import accepts, residual
from graphgen.runtime.sampling import GREEDY
from graphgen.runtime.sampling.choose_token import ACCEPTING, choose_token, draw, uniform
from graphgen.runtime.sampling.processors import Scores, probabilities, process
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow
from graphgen.runtime.speculation.tree_proposal import TreeProposal


class ProposedTokens(Protocol):
    """The tokens of a proposal of any form, and what they were drawn from."""

    @property
    def tokens(self) -> Sequence[int]:
        """Token ids."""
        ...

    @property
    def probabilities(self) -> Sequence[Scores]:
        """For each token a distribution float64 [V]; empty where they were not drawn."""
        ...


# Called with logits float [V] of the target and the tokens accepted before them; gives the logits
# that the next token is chosen from.
Change = Callable[[npt.NDArray[np.floating], Sequence[int]], npt.NDArray[np.floating]]


def accept(logits: npt.NDArray[np.floating], proposal: Proposal, row: SpeculativeRow) -> list[int]:
    """The next 1 to n + 1 tokens of a row: accepted ones, then one of the target.

    Args:
        logits: float [n + 1,V] of the target, after the row's last token and after each proposed
            token.
        proposal: n tokens.
        row: the sequence before them.

    Raises:
        GraphgenError: GG0705 if the filters leave no token.
    """
    return list(accepted_tokens(logits, proposal, row))


def accepted_tokens(
    logits: npt.NDArray[np.floating],
    proposal: Proposal,
    row: SpeculativeRow,
    change: Change | None = None,
) -> Iterator[int]:
    """The tokens of :func:`accept`, each chosen at the iteration that takes it.

    Args:
        logits: as for :func:`accept`.
        proposal: as for :func:`accept`.
        row: as for :func:`accept`.
        change: made to the logits before a token is chosen, such as a bias.

    Raises:
        GraphgenError: as for :func:`accept`.
    """
    drawn = row.how.do_sample and not row.how.deterministic
    made: list[int] = []
    for index, scores in enumerate(logits[: len(proposal.tokens) + 1]):
        mine = scores if change is None else change(scores, made)
        proposed = index < len(proposal.tokens)
        if proposed and drawn:
            chosen = _accepted_or_drawn(mine, proposal, index, row, made)
        else:
            chosen = own_token(mine, row, made)
        yield chosen
        if not proposed or chosen != proposal.tokens[index]:
            return
        made.append(chosen)


def own_token(logits: npt.NDArray[np.floating], row: SpeculativeRow, made: Sequence[int]) -> int:
    """The token that the target takes or draws, as it would without speculation."""
    if row.how == GREEDY:
        return int(logits.argmax())
    return choose_token(logits, [*row.sequence, *made], row.how, row.number, row.made + len(made))


def _accepted_or_drawn(
    logits: npt.NDArray[np.floating],
    proposal: Proposal,
    index: int,
    row: SpeculativeRow,
    made: Sequence[int],
) -> int:
    """The proposed token, or another one if it is refused."""
    token, step = proposal.tokens[index], row.made + len(made)
    scores = process(logits, [*row.sequence, *made], row.how)
    if not np.isfinite(scores.max()):
        # It raises, as nothing is left to draw from.
        return own_token(logits, row, made)
    target = probabilities(scores)
    drafted = distribution_of(proposal, index, len(target))
    number = uniform(row.how.seed, row.number, step, ACCEPTING)
    if accepts(number, float(target[token]), float(drafted[token])):
        return token
    return drawn_from(residual(target, drafted), row, step)


def drawn_from(left: Scores, row: SpeculativeRow, step: int) -> int:
    """A token drawn from what refused ones leave of the target's distribution float64 [V].

    Args:
        left: need not sum to 1.
        row: with the seed.
        step: tokens of the answer before this one.
    """
    with np.errstate(divide="ignore"):
        scores = np.log(left)
    return draw(scores, uniform(row.how.seed, row.number, step))


def distribution_of(proposal: ProposedTokens, index: int, size: int) -> Scores:
    """The distribution float64 [V] of a proposed token, over the target's vocabulary."""
    made = np.zeros(size)
    if proposal.probabilities:
        drafted = proposal.probabilities[index][:size]
        made[: len(drafted)] = drafted
    else:
        made[proposal.tokens[index]] = 1.0
    return made


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
