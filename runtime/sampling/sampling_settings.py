"""Sampling settings, named as in Hugging Face's generation configuration."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from graphgen.errors import GraphgenError

# Scores divided by less overflow in the programs.
_LOWEST = 1e-30


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of one sequence; processors apply in the order of the fields.

    Attributes:
        repetition_penalty: scores of tokens the sequence already has, prompt included, are divided
            by it where positive and multiplied where negative; 1 for none.
        no_repeat_ngram_size: no n-gram of this length occurs twice; 0 for no limit.
        do_sample: draw from the remaining tokens; otherwise choose the highest score, of equal ones
            the lowest token id.
        temperature: scores are divided by it.
        top_k: keep only scores at least as high as the k-th highest; 0 for all.
        top_p: keep only the most probable tokens that together reach this probability, including
            the one that reaches it; 1 for all.
        min_p: keep only tokens with at least this fraction of the highest probability; 0 for all.
        seed: seed of the random numbers.
        deterministic: draw with the number 0.5 each time instead of random ones.

    Raises:
        GraphgenError: GG0705 for a value out of range.
    """

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    deterministic: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range (GG0705)."""
        # Written so that NaN fails too.
        _require(self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "> 0")
        _require(self.no_repeat_ngram_size >= 0, "no_repeat_ngram_size", self.no_repeat_ngram_size)
        if not _LOWEST <= self.temperature < inf:
            raise GraphgenError(
                "GG0705",
                f"temperature is {self.temperature:g}, not "
                f"{'> 0' if not self.temperature > 0 else f'in [{_LOWEST:g}, inf)'}",
                help="for the most probable token each time, do not sample",
            )
        _require(self.top_k >= 0, "top_k", self.top_k)
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1]")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "in [0, 1]")
        _require(0 <= self.seed < 1 << 64, "seed", self.seed, "in [0, 2^64)")


def _require(holds: bool, name: str, value: float, wanted: str = ">= 0") -> None:
    if not holds:
        raise GraphgenError("GG0705", f"{name} is {value:g}, not {wanted}")


GREEDY = Sampling()
