"""Random prompts of given lengths: common words, counted by a tokenizer or as a token each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CountTokens = Callable[[str], int]

# Words that most vocabularies have as one token after a space.
_COMMON = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night
point home water room mother area money story fact month lot right study book eye job word business
issue side kind head house service friend father power hour game line end member law car city
community name president team minute idea kid body information back parent face others level office
door health person art war history party result change morning reason research girl guy moment air
teacher force education
"""
_WORDS = tuple(_COMMON.split())


@dataclass(frozen=True, slots=True)
class LoadPrompt:
    """One request to send.

    Attributes:
        text: of the prompt.
        input_tokens: of ``text``, without what a chat template adds.
        output_tokens: the most tokens of the answer.
    """

    text: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class PromptSizes:
    """Normal distributions of tokens, as LLMPerf has them.

    Attributes:
        mean_input, stddev_input: of a prompt.
        mean_output, stddev_output: of the most tokens of an answer.
    """

    mean_input: int
    stddev_input: int
    mean_output: int
    stddev_output: int


def make_prompts(
    count: int, sizes: PromptSizes, seed: int, count_tokens: CountTokens | None = None
) -> list[LoadPrompt]:
    """Prompts that have no beginning in common, so that no server has seen them before.

    Args:
        count: of prompts.
        sizes: drawn again until they are at least 1.
        seed: of the sizes and words; prompt number i is the same for every ``count``.
        count_tokens: tokens of a text; without it each word is taken for one. A prompt is the
            longest list of words that has no more tokens than were drawn.
    """
    made: list[LoadPrompt] = []
    for number in range(count):
        source = random.Random(f"{seed}.{number}")
        wanted = _positive(source, sizes.mean_input, sizes.stddev_input)
        most = _positive(source, sizes.mean_output, sizes.stddev_output)
        words = source.choices(_WORDS, k=wanted)
        text = " ".join(words[: _fitting(words, wanted, count_tokens)])
        made.append(LoadPrompt(text, count_tokens(text) if count_tokens else wanted, most))
    return made


def _positive(source: random.Random, mean: int, stddev: int) -> int:
    """A whole number of at least 1; rounded towards zero, as LLMPerf does."""
    while (drawn := int(source.gauss(mean, stddev))) < 1:
        pass
    return drawn


def _fitting(words: Sequence[str], wanted: int, count_tokens: CountTokens | None) -> int:
    """The most words, at least 1, that have at most ``wanted`` tokens."""
    if count_tokens is None:
        return len(words)
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(" ".join(words[:middle])) <= wanted:
            low = middle
        else:
            high = middle - 1
    return low
