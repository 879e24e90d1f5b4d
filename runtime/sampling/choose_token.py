"""Choose the next token: greedy, or drawn with a counter-based random number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling.processors import Scores, probabilities, process, ranking
from graphgen.runtime.sampling.sampling_settings import Sampling


def choose_token(
    logits: npt.NDArray[np.floating], tokens: Sequence[int], how: Sampling, sequence: int, step: int
) -> int:
    """The next token of a sequence.

    Args:
        logits: float [V], of the sequence's last token.
        tokens: the sequence so far, prompt first.
        how: the sampling settings.
        sequence: index of the sequence; its random numbers depend on it, not on other sequences.
        step: number of tokens generated so far.

    Raises:
        GraphgenError: GG0705 if the filters leave no token.
    """
    scores = process(logits, tokens, how)
    if not np.isfinite(scores.max()):
        raise GraphgenError(
            "GG0705",
            f"no token is left for sequence {sequence + 1} after {step} new tokens",
            note="the logits hold no finite number" if not np.isfinite(logits).any() else "",
            help="a larger no_repeat_ngram_size leaves more",
        )
    if not how.do_sample:
        return int(scores.argmax())
    return draw(scores, number_for(how, sequence, step))


def number_for(how: Sampling, sequence: int, step: int) -> float:
    """The random number in [0, 1) of one draw."""
    return 0.5 if how.deterministic else uniform(how.seed, sequence, step)


# Uses of random numbers at one step, each with numbers of its own.
CHOOSING, DRAFTING, ACCEPTING = range(3)


def uniform(seed: int, sequence: int, step: int, use: int = CHOOSING) -> float:
    """A number in [0, 1), a pure function of its arguments (Philox 4x64)."""
    # NumPy would make floats of a list with an integer of 2^63 or more.
    key = np.array([seed, sequence], np.uint64)
    bits = np.random.Philox(key=key, counter=[step, use, 0, 0])
    return float(np.random.Generator(bits).random())


def draw(scores: Scores, number: float) -> int:
    """Inverse-CDF sampling: the token at which the cumulative probability passes ``number``.

    Tokens are ordered by descending probability; ties by ascending token id.
    """
    order = ranking(scores)
    reached = np.cumsum(probabilities(scores)[order])
    place = np.count_nonzero(reached <= number * reached[-1])
    last = np.count_nonzero(np.isfinite(scores)) - 1
    return int(order[min(place, last)])
