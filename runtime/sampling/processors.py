"""What changes or removes scores before a token is chosen, each with Hugging Face's meaning.

Every function takes the scores of one sequence and gives new ones, float64 [V]; a removed token has
minus infinity. No sequence sees another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphgen.runtime.sampling.sampling_settings import Sampling

Scores = npt.NDArray[np.float64]


def process(logits: npt.NDArray[np.floating], tokens: Sequence[int], how: Sampling) -> Scores:
    """The scores the next token is chosen from.

    Args:
        logits: [V].
        tokens: the sequence so far, prompt first.
        how: which steps are taken; filters and temperature only where it samples.
    """
    scores: Scores = logits.astype(np.float64)
    if how.repetition_penalty != 1:
        scores = _penalize(scores, tokens, how.repetition_penalty)
    if how.no_repeat_ngram_size:
        scores = _without(scores, _closing(tokens, how.no_repeat_ngram_size))
    if not how.do_sample:
        return scores
    scores = scores / how.temperature
    if how.top_k:
        scores = _top_k(scores, how.top_k)
    if how.top_p < 1:
        scores = _top_p(scores, how.top_p)
    if how.min_p:
        scores = _min_p(scores, how.min_p)
    return scores


def probabilities(scores: Scores) -> Scores:
    """Softmax; a removed token has none."""
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def _penalize(scores: Scores, tokens: Sequence[int], penalty: float) -> Scores:
    known = [token for token in set(tokens) if token < scores.size]
    old = scores[known]
    out = scores.copy()
    out[known] = np.where(old < 0, old * penalty, old / penalty)
    return out


def _closing(tokens: Sequence[int], size: int) -> list[int]:
    """Tokens that would make the last ``size`` tokens a run that is there already."""
    start = len(tokens) + 1 - size
    if start < 0:
        return []
    prefix = tuple(tokens[start:])
    ends = range(size - 1, len(tokens))
    return [tokens[end] for end in ends if tuple(tokens[end - size + 1 : end]) == prefix]


def _without(scores: Scores, tokens: Sequence[int]) -> Scores:
    out = scores.copy()
    out[[token for token in tokens if token < scores.size]] = -np.inf
    return out


def _top_k(scores: Scores, k: int) -> Scores:
    """Ties with the k-th highest stay."""
    if k >= scores.size:
        return scores
    least = np.partition(scores, scores.size - k)[scores.size - k]
    return np.where(scores < least, -np.inf, scores)


def _top_p(scores: Scores, p: float) -> Scores:
    """The token that reaches ``p`` stays."""
    order = np.argsort(scores, kind="stable")
    least_first = np.cumsum(probabilities(scores)[order])
    removed = least_first <= 1 - p
    removed[-1] = False
    return _without(scores, order[removed].tolist())


def _min_p(scores: Scores, share: float) -> Scores:
    probable = probabilities(scores)
    return np.where(probable < share * probable.max(), -np.inf, scores)
