"""The host's choice of a request's next token: bias, penalties, mask, sampling, probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling import GREEDY, Sampling, choose_token
from graphgen.runtime.sampling.processors import log_softmax, ranking

# Called with the tokens of an answer so far; gives bool [V], true for the tokens that may follow,
# or None where all may.
Mask = Callable[[Sequence[int]], npt.NDArray[np.bool_] | None]


class MaskError(GraphgenError):
    """Raised by a mask that cannot go on: its request is at fault, not the engine."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of the probabilities of one token and of the most probable ones.

    They are the log-softmax of the model's logits, before bias, mask, temperature and filters.

    Attributes:
        chosen: of the token that was chosen.
        top: token and logarithm of the k most probable tokens, the most probable first, of equal
            ones the lowest id first. The chosen token may be among them.
    """

    chosen: float
    top: tuple[tuple[int, float], ...]


def logprobs_of(logits: npt.NDArray[np.floating], token: int, count: int) -> TokenLogprobs:
    """The log probabilities of a chosen token.

    Args:
        logits: float [V], those of the model.
        token: the chosen one.
        count: k, number of most probable tokens to give.
    """
    logs = log_softmax(logits)
    best: list[int] = ranking(logs)[:count].tolist() if count else []
    return TokenLogprobs(float(logs[token]), tuple((one, float(logs[one])) for one in best))


def penalized_bias(
    bias: Mapping[int, float], answer: Sequence[int], frequency: float, presence: float
) -> Mapping[int, float]:
    """A logit bias with OpenAI's penalties of the tokens that an answer has already.

    A token that the answer has ``count`` times gets ``-(count * frequency) - presence``.

    Args:
        bias: added to the logits of its tokens.
        answer: the tokens so far, without those of the prompt.
        frequency: ``frequency_penalty``.
        presence: ``presence_penalty``.
    """
    if not frequency and not presence:
        return bias
    made = dict(bias)
    for token, count in Counter(answer).items():
        made[token] = made.get(token, 0.0) - count * frequency - presence
    return made


def next_token(
    logits: npt.NDArray[np.floating],
    tokens: Sequence[int],
    how: Sampling,
    sequence: int,
    step: int,
    *,
    bias: Mapping[int, float],
    allowed: npt.NDArray[np.bool_] | None,
) -> int:
    """The next token; bias and mask change the logits before any sampling setting applies.

    Args:
        logits: float [V], those of the model.
        tokens: prompt and answer so far.
        how: the sampling settings.
        sequence: number of the answer, for its random numbers.
        step: number of tokens of the answer so far.
        bias: added to the logits of its tokens.
        allowed: bool [V], false for tokens that may not follow; ``None`` for none of these.

    Raises:
        GraphgenError: GG0705 for a mask of another size or without a token, or if the filters of
            sampling leave no token.
    """
    logits = changed_logits(logits, bias, allowed)
    if how == GREEDY:
        return int(logits.argmax())
    return choose_token(logits, tokens, how, sequence, step)


def changed_logits(
    logits: npt.NDArray[np.floating],
    bias: Mapping[int, float],
    allowed: npt.NDArray[np.bool_] | None,
) -> npt.NDArray[np.floating]:
    """The logits that a token is chosen from, before any sampling setting applies.

    Args:
        logits: float [V], those of the model.
        bias: added to the logits of its tokens.
        allowed: bool [V], false for tokens that may not follow; ``None`` for none of these.

    Raises:
        GraphgenError: GG0705 for a mask of another size or without a token.
    """
    if not bias and allowed is None:
        return logits
    out = logits.astype(np.float64)
    for token, added in bias.items():
        out[token] += added
    if allowed is None:
        return out
    if allowed.shape != out.shape or allowed.dtype != np.bool_:
        given = f"{allowed.dtype}{list(allowed.shape)}"
        raise GraphgenError(
            "GG0705",
            f"the mask of allowed tokens is {given}, not bool{list(out.shape)}",
            help="give one truth value for each token of the vocabulary",
        )
    if not allowed.any():
        raise GraphgenError(
            "GG0705",
            "the mask allows no token",
            help="let it allow a token that ends the answer",
        )
    out[~allowed] = -np.inf
    return out
