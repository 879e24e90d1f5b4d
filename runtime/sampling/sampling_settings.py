"""Sampling settings, named as in Hugging Face's generation configuration.

The same settings mean the same on the host and in programs that choose tokens themselves:

- Tokens are ordered by descending score, those of equal score by ascending token id.
- ``global_topk`` keeps the first tokens of that order.
- ``top_k`` keeps scores at least as high as the k-th highest, so equal ones stay together.
- ``top_p`` keeps a token while the probability of those before it is below :func:`top_p_end`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from numbers import Real

from graphgen.config.fields import MismatchError, ValueType, integer, number
from graphgen.errors import GraphgenError

# Scores divided by less overflow in f32.
LOWEST_TEMPERATURE = 1e-30
_BEST = "for the most probable token each time, do not sample, or give 0"


@dataclass(frozen=True, slots=True)
class Setting:
    """The values of one setting.

    Attributes:
        name: as in Hugging Face's generation configuration.
        type: an integer, which may be written as a float without a fraction, or a number.
        none: the value that changes nothing.
        also: further values that mean ``none``, stored as ``none``.
        in_programs: programs that draw have the setting as an input.
        help: what a user who gives another value may want.
    """

    name: str
    type: ValueType[float]
    none: float
    also: tuple[float, ...] = ()
    in_programs: bool = False
    help: str = ""

    def read(self, value: object) -> float:
        """The checked value, an ``int`` for integers; ``none`` for ``also``.

        Raises:
            GraphgenError: GG0705 for a value that the type does not have.
        """
        if value in self.also and not isinstance(value, bool):
            return self.none
        try:
            return self.type.read(value)
        except MismatchError as error:
            also = "".join(f"{other:g} or " for other in self.also)
            shown = repr(value)
            # NumPy's scalars are registered as Real, and show their type.
            if not isinstance(value, bool) and isinstance(value, Real):
                shown = f"{float(value):g}"
            what = f"{self.name} is {shown}, expected {also}{error.wanted}"
            raise GraphgenError("GG0705", what, help=self.help) from None


_COUNT = integer(0, floats=True)
_FACTOR = number(0, open_low=True, infinite=True)
SETTINGS: Mapping[str, Setting] = {
    row.name: row
    for row in (
        Setting("repetition_penalty", _FACTOR, 1),
        Setting("no_repeat_ngram_size", _COUNT, 0),
        Setting("temperature", number(0, infinite=True), 1, in_programs=True, help=_BEST),
        Setting("global_topk", _COUNT, 0),
        Setting("top_k", _COUNT, 0, also=(-1,), in_programs=True),
        Setting("top_p", number(0, 1, open_low=True), 1, in_programs=True),
        Setting("top_p_min_tokens", integer(1, floats=True), 1, in_programs=True),
        Setting("min_p", number(0, 1), 0),
        Setting("seed", integer(0, (1 << 64) - 1, floats=True), 0),
    )
}


def check_temperature(value: float) -> None:
    """Refuse a temperature that f32 scores cannot be divided by (GG0705)."""
    if 0 < value < LOWEST_TEMPERATURE or value == inf:
        raise GraphgenError(
            "GG0705",
            f"temperature is {value:g}, not 0 or in [{LOWEST_TEMPERATURE:g}, inf)",
            help=_BEST,
        )


# Probabilities are sums of rounded numbers: 0.5 + 0.3 reaches a top_p of 0.8 on any machine.
_NOMINAL = 1e-6


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of one sequence; processors apply in the order of the fields.

    A setting without effect has its default: settings that take the best token, because they do not
    sample or because their temperature is 0, keep only the first two fields.

    Attributes:
        repetition_penalty: scores of tokens the sequence already has, prompt included, are divided
            by it where positive and multiplied where negative; 1 for none.
        no_repeat_ngram_size: no n-gram of this length occurs twice; 0 for no limit.
        do_sample: draw from the remaining tokens; otherwise choose the highest score, of equal ones
            the lowest token id.
        temperature: scores are divided by it; 0 for the highest score, as without ``do_sample``.
        global_topk: look at this many best tokens only, of equal ones at the lowest token ids; 0
            for all.
        top_k: keep only scores at least as high as the k-th highest; 0 or -1 for all.
        top_p: keep only the most probable tokens that together reach this probability, including
            the one that reaches it, of equal ones the lowest token ids; 1 for all.
        top_p_min_tokens: ``top_p`` keeps at least this many of the tokens that ``top_k`` keeps.
        min_p: keep only tokens with at least this fraction of the highest probability; 0 for all.
        seed: seed of the random numbers.
        deterministic: draw with the number 0.5 each time instead of random ones.

    Raises:
        GraphgenError: GG0705 for a value out of range, or a fraction where an integer belongs.
    """

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    global_topk: int = 0
    top_k: int = 0
    top_p: float = 1.0
    top_p_min_tokens: int = 1
    min_p: float = 0.0
    seed: int = 0
    deterministic: bool = False

    def __post_init__(self) -> None:
        """Check each value by the table of settings, and drop those without effect (GG0705)."""
        for name, row in SETTINGS.items():
            self._set(name, row.read(getattr(self, name)))
        check_temperature(self.temperature)
        if not self.do_sample or self.temperature == 0:
            for field in fields(self)[2:]:
                self._set(field.name, field.default)
        elif self.top_p == 1:
            self._set("top_p_min_tokens", 1)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def top_p_end(top_p: float) -> float:
    """The probability before a token at which ``top_p`` removes it; 2 where nothing is removed.

    Both the host's filter and the inputs of programs use it.
    """
    return 2.0 if top_p >= 1 else max(top_p - _NOMINAL, 1e-30)


GREEDY = Sampling()
