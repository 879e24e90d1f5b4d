"""Acceptance of proposed tokens: the target's own tokens, or draws from its own distribution.

Greedy: a proposal is accepted while it is the token that the target takes. Drawn: speculative
sampling (Leviathan et al. 2022, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318). A token x
that was drawn from q is accepted with probability min(1, p(x) / q(x)); the first refused one is
replaced by a draw from max(p - q, 0), normalized. The tokens are then distributed as draws from p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from graphgen.eval.speculative_sampling import accepts, residual
from graphgen.runtime.sampling import GREEDY
from graphgen.runtime.sampling.choose_token import ACCEPTING, choose_token, draw, uniform
from graphgen.runtime.sampling.processors import Scores, probabilities, process
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow

# The number of kinds of random numbers of a step; sibling k has kind ACCEPTING + 3 k.
_KINDS = 3
# Called with logits float [V] of the target and the tokens accepted before them; gives the logits
# that the next token is chosen from.
Change = Callable[[npt.NDArray[np.floating], Sequence[int]], npt.NDArray[np.floating]]


def accept(
    logits: npt.NDArray[np.floating], proposal: Proposal, row: SpeculativeRow
) -> tuple[list[int], list[int]]:
    """The accepted nodes of a row and its next 1 to n + 1 tokens.

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
    path = list(accepted_path(logits, proposal, row))
    return [0, *(node for _, node in path if node is not None)], [token for token, _ in path]


def accepted_path(
    logits: npt.NDArray[np.floating],
    proposal: Proposal,
    row: SpeculativeRow,
    change: Change | None = None,
) -> Iterator[tuple[int, int | None]]:
    """The tokens of :func:`accept`, each chosen at the iteration that takes it.

    Args:
        logits: as for :func:`accept`.
        proposal: as for :func:`accept`.
        row: as for :func:`accept`.
        change: made to the logits before a token is chosen, such as a bias.

    Yields:
        A token and its node; no node for the last token, the target's own.

    Raises:
        GraphgenError: as for :func:`accept`.
    """
    children = proposal.children()
    drawn = row.how.do_sample and not row.how.deterministic
    at: int | None = 0
    made: list[int] = []
    while at is not None:
        scores = logits[at] if change is None else change(logits[at], made)
        choose = _drawn if drawn and children[at] else _chosen
        token, at = choose(scores, proposal, children[at], row, made)
        yield token, at
        made.append(token)


def _chosen(
    logits: npt.NDArray[np.floating],
    proposal: Proposal,
    candidates: Sequence[int],
    row: SpeculativeRow,
    made: Sequence[int],
) -> tuple[int, int | None]:
    """The token that the target takes or draws, and the child that has it."""
    if row.how == GREEDY:
        token = int(logits.argmax())
    else:
        sequence = [*row.sequence, *made]
        token = choose_token(logits, sequence, row.how, row.number, row.made + len(made))
    return token, next((n for n in candidates if proposal.tokens[n - 1] == token), None)


def _drawn(
    logits: npt.NDArray[np.floating],
    proposal: Proposal,
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
        drafted = _distribution_of(proposal, node - 1, len(left))
        number = uniform(row.how.seed, row.number, step, ACCEPTING + _KINDS * place)
        if accepts(number, float(left[token]), float(drafted[token])):
            return token, node
        left = residual(left, drafted)
        left = left / left.sum()
    with np.errstate(divide="ignore"):
        rest = np.log(left)
    return draw(rest, uniform(row.how.seed, row.number, step)), None


def _distribution_of(proposal: Proposal, index: int, size: int) -> Scores:
    """The distribution float64 [V] of a proposed token, over the target's vocabulary."""
    made = np.zeros(size)
    if proposal.probabilities:
        drafted = proposal.probabilities[index][:size]
        made[: len(drafted)] = drafted
    else:
        made[proposal.tokens[index]] = 1.0
    return made
