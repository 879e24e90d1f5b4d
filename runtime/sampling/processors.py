"""Logits processors of one sequence, equal to Hugging Face's.

Every function maps scores to new scores, float64 [V]; a removed token has minus infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphgen.runtime.sampling.sampling_settings import Sampling, top_p_end


def log_softmax(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Logarithms of probabilities, float64 [...,V], of logits [...,V]."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(-1, keepdims=True))


Scores = npt.NDArray[np.float64]


def process(logits: npt.NDArray[np.floating], tokens: Sequence[int], how: Sampling) -> Scores:
    """Apply all processors: the scores, float64 [V], to choose the next token from.

    Args:
        logits: float [V].
        tokens: the sequence so far, prompt first.
        how: the settings; filters and temperature apply only if it samples.
    """
    scores: Scores = logits.astype(np.float64)
    if how.repetition_penalty != 1:
        scores = _penalize(scores, tokens, how.repetition_penalty)
    if how.no_repeat_ngram_size:
        scores = _without(scores, _closing(tokens, how.no_repeat_ngram_size))
    if not how.do_sample:
        return scores
    scores = scores / how.temperature
    if 0 < how.global_topk < scores.size:
        scores = _without(scores, ranking(scores)[how.global_topk :].tolist())
    if how.top_k:
        scores = _top_k(scores, how.top_k)
    if how.top_p < 1:
        scores = _top_p(scores, how.top_p, how.top_p_min_tokens)
    if how.min_p:
        scores = _min_p(scores, how.min_p)
    return scores


def probabilities(scores: Scores) -> Scores:
    """Softmax [V]; 0 for a removed token."""
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def ranking(scores: Scores) -> npt.NDArray[np.intp]:
    """Token ids [V] by descending score; those of equal score by ascending id."""
    return np.argsort(-scores, kind="stable")


def _penalize(scores: Scores, tokens: Sequence[int], penalty: float) -> Scores:
    known = [token for token in set(tokens) if token < scores.size]
    old = scores[known]
    out = scores.copy()
    out[known] = np.where(old < 0, old * penalty, old / penalty)
    return out


def _closing(tokens: Sequence[int], size: int) -> list[int]:
    """Tokens that would repeat an n-gram of length ``size``."""
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
    """Keep the scores at least as high as the k-th highest."""
    if k >= scores.size:
        return scores
    least = np.partition(scores, scores.size - k)[scores.size - k]
    return np.where(scores < least, -np.inf, scores)


def _top_p(scores: Scores, p: float, least: int) -> Scores:
    """Keep the most probable tokens up to the one that reaches ``p``, and the first ``least``."""
    order = ranking(scores)
    sums = np.cumsum(probabilities(scores)[order])
    removed = np.append(0.0, sums[:-1]) >= top_p_end(p)
    removed[:least] = False
    return _without(scores, order[removed].tolist())


def _min_p(scores: Scores, share: float) -> Scores:
    probable = probabilities(scores)
    return np.where(probable < share * probable.max(), -np.inf, scores)
