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
from math import inf, isfinite
from numbers import Integral, Real

from graphgen.errors import GraphgenError

# Scores divided by less overflow in f32.
LOWEST_TEMPERATURE = 1e-30
_BEST = "for the most probable token each time, do not sample, or give 0"


@dataclass(frozen=True, slots=True)
class SettingRange:
    """The values of one setting.

    Attributes:
        name: as in Hugging Face's generation configuration.
        kind: ``int`` or ``float``; an integer may be written as a float without a fraction.
        low: the least value.
        high: the greatest value, or infinity.
        open_low: ``low`` itself is out of range.
        none: the value that changes nothing.
        also: further values that mean ``none``, stored as ``none``.
        in_programs: programs that draw have the setting as an input.
        help: what a user who gives a value out of range may want.
    """

    name: str
    kind: type[int] | type[float]
    low: float
    high: float
    none: float
    open_low: bool = False
    also: tuple[float, ...] = ()
    in_programs: bool = False
    help: str = ""

    @property
    def text(self) -> str:
        """The range in mathematical notation, as errors show it."""
        if self.high == inf:
            return f"{'>' if self.open_low else '>='} {self.low:g}"
        high = f"2^{int(self.high).bit_length()})" if self.high > 1e9 else f"{self.high:g}]"
        return f"in {'(' if self.open_low else '['}{self.low:g}, {high}"

    def read(self, value: object) -> float:
        """The checked value, an ``int`` for integer settings; ``none`` for ``also``.

        Raises:
            GraphgenError: GG0705 for a value of another type, with a fraction, or out of range.
        """
        # NumPy's scalars are registered as Real; bool is a subclass of int.
        if isinstance(value, bool) or not isinstance(value, Real):
            raise GraphgenError("GG0705", f"{self.name} is {value!r}, not {self.noun}")
        number = int(value) if isinstance(value, Integral) else float(value)
        if self.kind is int and not (isfinite(number) and number == int(number)):
            raise GraphgenError("GG0705", f"{self.name} is {number:g}, not an integer")
        if number in self.also:
            return self.none
        # Written so that NaN fails too.
        if not (self.low < number if self.open_low else self.low <= number) or number > self.high:
            also = "".join(f"{other:g} or " for other in self.also)
            raise GraphgenError(
                "GG0705", f"{self.name} is {number:g}, not {also}{self.text}", help=self.help
            )
        return self.kind(number)

    @property
    def noun(self) -> str:
        """The type with its article."""
        return "an integer" if self.kind is int else "a number"


SETTINGS: Mapping[str, SettingRange] = {
    row.name: row
    for row in (
        SettingRange("repetition_penalty", float, 0, inf, 1, open_low=True),
        SettingRange("no_repeat_ngram_size", int, 0, inf, 0),
        SettingRange("temperature", float, 0, inf, 1, in_programs=True, help=_BEST),
        SettingRange("global_topk", int, 0, inf, 0),
        SettingRange("top_k", int, 0, inf, 0, also=(-1,), in_programs=True),
        SettingRange("top_p", float, 0, 1, 1, open_low=True, in_programs=True),
        SettingRange("top_p_min_tokens", int, 1, inf, 1, in_programs=True),
        SettingRange("min_p", float, 0, 1, 0),
        SettingRange("seed", int, 0, (1 << 64) - 1, 0),
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
