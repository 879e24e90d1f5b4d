"""Filter and draw tokens as a sampler does, in NumPy.

The reference of sampling in programs, written from the documentation of
:class:`~graphgen.passes.sampling.on_device.OnDeviceSampling`.
"""

from __future__ import annotations

import numpy as np

from graphgen.eval.arithmetic import Array

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
