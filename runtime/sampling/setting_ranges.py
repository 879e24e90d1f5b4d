"""The table of sampling settings: of each its type, its range, and the value that means none.

:class:`~graphgen.runtime.sampling.Sampling`, the inputs of programs that draw and the options of
the command line all read their values by this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
