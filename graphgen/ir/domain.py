"""Domains: the values that an interface row may hold, a range or a set.

A domain holds for each element of a row's logical type. A row without a domain may hold every value
of its type. A domain of floats excludes NaN and infinities.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import index
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.ir.dims import Dim, Poly, bind, parse_dim, symbols
from graphgen.ir.dtype import DType, highest, lowest
from graphgen.numbers import finite, signed_number

# An end of a range: a number, or a size such as C-1.
Bound = int | float | Poly
_HELP = "write [0,31], [-1,C-1] or {0,1,3}"


@dataclass(frozen=True, slots=True)
class Domain:
    """The values from ``low`` to ``high``, or those of a set.

    Attributes:
        low: the least value.
        high: the greatest value; it is one of the values.
        values: of a set, all values in order; empty for a range.

    Raises:
        GraphgenError: GG0108 for ends in the wrong order, and for what is neither a finite number
            nor a size.
    """

    low: Bound
    high: Bound
    values: tuple[int | float, ...] = ()

    def __post_init__(self) -> None:
        numbers = [_number(value) for value in self.values]
        object.__setattr__(self, "values", tuple(sorted(set(numbers))))
        for name in ("low", "high"):
            object.__setattr__(self, name, _bound(getattr(self, name)))
        if self.values and self.numbers != (self.values[0], self.values[-1]):
            what = f"{self.text} does not end at {self.low} and {self.high}"
            raise GraphgenError("GG0108", what)
        if self.numbers is not None and self.numbers[0] > self.numbers[1]:
            what = f"{self.text} has no values: {self.low} is above {self.high}"
            raise GraphgenError("GG0108", what)

    @staticmethod
    def of(values: Sequence[int | float] | AbstractSet[int] | AbstractSet[float]) -> Domain:
        """The domain of these values (GG0108 for none)."""
        numbers = [_number(value) for value in values]
        if not numbers:
            raise GraphgenError("GG0108", "a domain without values", help=_HELP)
        return Domain(min(numbers), max(numbers), tuple(numbers))

    @property
    def text(self) -> str:
        """As printed: ``[-1,C-1]`` or ``{0,1,3}``."""
        if self.values:
            return "{" + ",".join(map(str, self.values)) + "}"
        return f"[{self.low},{self.high}]"

    @property
    def numbers(self) -> tuple[int | float, int | float] | None:
        """Both ends where they are numbers, else ``None``."""
        low, high = self.low, self.high
        return None if isinstance(low, Poly) or isinstance(high, Poly) else (low, high)

    @property
    def symbols(self) -> set[str]:
        """The names of the symbols in the ends."""
        return symbols([end for end in (self.low, self.high) if isinstance(end, Poly)])

    def bind(self, sizes: Mapping[str, Dim]) -> Domain:
        """The domain with the symbols of ``sizes`` replaced; others stay."""
        if self.values or not self.symbols & sizes.keys():
            return self
        ends = [bind(end, sizes) if isinstance(end, Poly) else end for end in (self.low, self.high)]
        return Domain(ends[0], ends[1])

    def within(self, dtype: DType) -> Domain:
        """The domain with ends that a type has: a size may be larger than its numbers."""
        if self.numbers is None or self.values:
            return self
        low, high = self.numbers
        if lowest(dtype) <= low and high <= highest(dtype):
            return self
        return Domain(max(low, lowest(dtype)), min(high, highest(dtype)))

    def ends(self, dtype: DType) -> tuple[int | float, int | float]:
        """The least and the greatest value of a type; an unbound end is that of the type."""
        low = lowest(dtype) if isinstance(self.low, Poly) else self.low
        high = highest(dtype) if isinstance(self.high, Poly) else self.high
        return low, high

    def holds(self, value: int | float) -> bool:
        """True if ``value`` is one of the domain; ends with symbols exclude nothing."""
        if self.values:
            return value in self.values
        above = isinstance(self.low, Poly) or self.low <= value
        return above and (isinstance(self.high, Poly) or value <= self.high)


# Spellings of a domain: itself, both ends, a Python range, a set of numbers.
DomainLike = Domain | tuple[Bound, Bound] | range | AbstractSet[int] | AbstractSet[float]


def as_domain(given: object) -> Domain:
    """The domain that a user wrote: itself, ``(low, high)``, a Python range or a set.

    Raises:
        GraphgenError: GG0108 for anything else, and as of :class:`Domain`.
    """
    if isinstance(given, Domain):
        return given
    if isinstance(given, range):
        whole = given.step == 1 and len(given) > 0
        return Domain(given[0], given[-1]) if whole else Domain.of(given)
    if isinstance(given, AbstractSet):
        return Domain.of(cast("AbstractSet[int]", given))
    if isinstance(given, tuple | list):
        ends = cast("Sequence[Bound]", given)
        if len(ends) == 2:
            return Domain(ends[0], ends[1])
    raise GraphgenError(
        "GG0108",
        f"{given!r} is not a domain",
        help="write domain=(low, high), both of them values of the domain, or domain={0, 1, 3}",
    )


def hull(domains: Sequence[Domain | None]) -> Domain | None:
    """A domain with the values of all; ``None`` if one is, or if they differ and have symbols."""
    first = domains[0]
    if all(domain == first for domain in domains):
        return first
    numbers = [domain.numbers if domain is not None else None for domain in domains]
    ends = [pair for pair in numbers if pair is not None]
    if len(ends) < len(domains):
        return None
    return Domain(min(low for low, _ in ends), max(high for _, high in ends))


def parse_domain(text: str) -> Domain:
    """Read the text of a domain back (GG0108)."""
    if match := re.fullmatch(r"\[([^,\[\]]+),([^,\[\]]+)\]", text):
        return Domain(_parsed(match[1], text), _parsed(match[2], text))
    if match := re.fullmatch(r"\{([^{}]+)\}", text):
        return Domain.of([_number(_parsed(item, text)) for item in match[1].split(",")])
    raise GraphgenError("GG0108", f"'{text}' is not a domain", help=_HELP)


def check_domain(domain: Domain, dtype: DType) -> None:
    """Require values that a type has (GG0108)."""
    if not (dtype.is_number or dtype.name == "pred") or dtype.is_complex:
        raise GraphgenError("GG0108", f"values of {dtype.name} have no domain {domain.text}")
    low, high = lowest(dtype), highest(dtype)
    for value in domain.values or (domain.low, domain.high):
        if isinstance(value, Poly):
            continue
        if isinstance(value, float) and not dtype.is_float:
            what = f"{value} in the domain {domain.text} is not an integer"
            raise GraphgenError("GG0108", what, help=f"the type is {dtype.name}")
        if not low <= value <= high:
            what = f"{value} in the domain {domain.text} is not a value of {dtype.name}"
            raise GraphgenError("GG0108", what, help=f"{dtype.name} has {low} to {high}")


def _parsed(text: str, whole: str) -> Bound:
    try:
        if re.fullmatch(r"-?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]+)?", text):
            return signed_number(text) if re.fullmatch(r"-?[0-9]+", text) else finite(text)
        return parse_dim(text)
    except (GraphgenError, ValueError) as error:
        what = f"'{text}' in the domain {whole} is neither a number nor a size"
        raise GraphgenError("GG0108", what, help=_HELP) from error


def _bound(value: object) -> Bound:
    return value if isinstance(value, Poly) else _number(value)


def _number(value: object) -> int | float:
    """A finite Python number from one of Python or NumPy (GG0108)."""
    if hasattr(value, "__index__"):
        return index(cast(int, value))
    if hasattr(value, "__float__"):
        number = float(cast(float, value))
        if math.isfinite(number):
            return number
    raise GraphgenError("GG0108", f"{value!r} in a domain is not a finite number", help=_HELP)
