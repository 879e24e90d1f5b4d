"""Speculative sampling: the rule of acceptance, and the NumPy rule of ``accept``.

A token that was drawn from q is right with probability min(1, p / q); what replaces a refused one
is drawn from max(p - q, 0) (arXiv 2211.17192, 2302.01318). The host's loop has the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.registry import composite_rule
from graphgen.ir import Attrs

# The top_p of a row that takes its best token: that one alone reaches it.
_COLD = 1e-30


def settled(top_p: float, temperature: float, least: int) -> tuple[float, float, int]:
    """The filters of a row; those that leave its best token for a temperature of 0 or less."""
    return (_COLD, 1.0, 0) if temperature <= 0 else (top_p, temperature, least)


def shares_left(scores: Array, top_k: int, top_p: float, temperature: float, least: int) -> Array:
    """Probabilities of tokens before they are normalized again; 0 for removed ones.

    Args:
        scores: float [n], those that are looked at in descending order.
        top_k: how many of them stay, with all that equal the last; 0 or less for all.
        top_p: a token stays while the probability of those before it is below.
        temperature: positive.
        least: how many of the first ones top_p keeps at least.
    """
    scores = scores / scores.dtype.type(temperature)
    if 0 < top_k < scores.size:
        scores = scores[scores >= scores[top_k - 1]]
    probable = weights(scores)
    probable = probable / probable.sum()
    before: Array = np.append(0.0, np.cumsum(probable)[:-1])
    stays: Array = (before < top_p) | (np.arange(len(probable)) < least)
    return np.where(stays, probable, 0.0).astype(scores.dtype)


def weights(scores: Array) -> Array:
    """Probabilities of scores in descending order, up to a factor."""
    best = scores[0]
    return np.exp(np.where(scores == best, 0.0, scores - best))


def place_of(shares: Array, number: float) -> int:
    """The place at which the sum of shares passes the part ``number`` of it all."""
    reached = np.cumsum(shares)
    passed = int(np.count_nonzero(reached <= number * reached[-1]))
    last = int(np.flatnonzero(shares > 0).max(initial=0))
    return min(passed, last)


def accepts(random: float, target: float, drafted: float) -> bool:
    """True for a proposed token of probability ``target`` that had ``drafted`` in the draft."""
    return bool(random * drafted < target)


def residual(target: Array, drafted: Array) -> Array:
    """``max(p - q, 0)``, from which the token after a refused one is drawn.

    Rounding may refuse a token where both distributions are the same: then p.
    """
    left = np.maximum(target - drafted, 0)
    return left if left.any() else target


@composite_rule("accept")
def _accept(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    return accept_rows(x)


def accept_rows(x: Sequence[Array]) -> Sequence[Array]:
    """The results of ``accept`` from its operands: tokens s32 [B,N], -1 beyond them, and counts."""
    proposals, limits, *_ = x
    tokens = np.full((len(proposals), proposals.shape[1] + 1), -1, np.int32)
    counts = np.zeros(len(proposals), np.int32)
    for row, limit in enumerate(limits.tolist()):
        made = _row([array[row] for array in x], min(limit, tokens.shape[1])) if limit > 0 else []
        tokens[row, : len(made)] = made
        counts[row] = len(made)
    return [tokens, counts]


def _row(x: Sequence[Array], limit: int) -> list[int]:
    """The tokens of one row with room for some."""
    proposals, _, ids, target, draft_ids, drafted, random = x
    made: list[int] = []
    for place in range(limit):
        left = target[place]
        if place < limit - 1:
            token = int(proposals[place])
            p = left[ids[place] == token].sum()
            q = drafted[place][draft_ids[place] == token].sum()
            if accepts(random[place, 0], p, q):
                made.append(token)
                continue
            same = ids[place][:, None] == draft_ids[place]
            left = residual(left, np.where(same, drafted[place], 0).sum(1).astype(left.dtype))
        return [*made, int(ids[place][place_of(left, random[place, 1])])]
    return made
