"""The token that follows: the best one, or one drawn with a random number of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling.processors import Scores, probabilities, process
from graphgen.runtime.sampling.sampling_settings import Sampling


def choose_token(
    logits: npt.NDArray[np.floating], tokens: Sequence[int], how: Sampling, sequence: int, step: int
) -> int:
    """The next token of a sequence.

    Args:
        logits: [V], of the sequence's last token.
        tokens: the sequence so far, prompt first.
        how: how to choose.
        sequence: its number, which gives it random numbers of its own whatever others there are.
        step: how many tokens it has been given.

    Raises:
        GraphgenError: GG0705 where the rules leave no token.
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
    """The number in [0, 1) that a token is drawn with."""
    return 0.5 if how.deterministic else uniform(how.seed, sequence, step)


def uniform(seed: int, sequence: int, step: int) -> float:
    """A number in [0, 1) that depends on these three and on nothing else (Philox 4x64)."""
    bits = np.random.Philox(key=[seed, sequence], counter=[step, 0, 0, 0])
    return float(np.random.Generator(bits).random())


def draw(scores: Scores, number: float) -> int:
    """The token at which the sum of probabilities, most probable first, passes ``number``.

    Of equal probabilities the lowest token id comes first.
    """
    order = np.argsort(-scores, kind="stable")
    reached = np.cumsum(probabilities(scores)[order])
    place = np.count_nonzero(reached <= number * reached[-1])
    last = np.count_nonzero(np.isfinite(scores)) - 1
    return int(order[min(place, last)])
