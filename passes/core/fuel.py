"""Fuel: a limit on the rewrites of a pipeline, for bisecting wrong ones.

``100`` lets the pipeline make its first hundred rewrites and end there. ``cse=3,legalize=2`` lets
those passes make that many and continues with the next; ``cse#2=3`` is the second ``cse``.
``cse=[1-5,8]`` lets ``cse`` make only these of the rewrites that it makes without a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from graphgen.errors import GraphgenError
from graphgen.numbers import is_digits


@dataclass(frozen=True, slots=True)
class Fuel:
    """A limit on rewrites.

    Attributes:
        total: over the whole pipeline, ``None`` for no limit.
        of_pass: of single passes, by label (:func:`labels`).
        chosen: of single passes, by label, the numbers of the rewrites they may make, from 1.
    """

    total: int | None = None
    of_pass: Mapping[str, int] = field(default_factory=dict[str, int])
    chosen: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])

    def limit(self, label: str, spent: int) -> int | None:
        """Fuel of the pass when ``spent`` is used up already; ``None`` for no limit."""
        limits = [self.of_pass[label]] if label in self.of_pass else []
        if self.total is not None:
            limits.append(max(self.total - spent, 0))
        return min(limits, default=None)


NO_LIMIT = Fuel()


class Named(Protocol):
    """A pass, as far as labels need it."""

    name: ClassVar[str]


def labels(passes: Sequence[Named]) -> list[str]:
    """Names that tell the passes of a pipeline apart: ``cse``, and ``cse#2`` for the second."""
    seen: dict[str, int] = {}
    out: list[str] = []
    for item in passes:
        count = seen[item.name] = seen.get(item.name, 0) + 1
        out.append(item.name if count == 1 else f"{item.name}#{count}")
    return out


_LIMIT = re.compile(r"\s*([\w-]+(?:#[0-9]{1,9})?)=(?:([0-9]{1,18})|\[([0-9,\s-]*)\])\s*(?:,|$)")
_RANGE = re.compile(r"\s*(\d+)(?:-(\d+))?\s*")


def parse_fuel(text: str, what: str) -> Fuel:
    """Read ``100``, ``cse=3,legalize=2`` or ``cse=[1-5,8]``.

    Args:
        text: empty for no limit.
        what: the option or variable, for the error.

    Raises:
        GraphgenError: GG0705 for any other text.
    """
    if not text:
        return NO_LIMIT
    if is_digits(text):
        return Fuel(int(text))
    counts: dict[str, int] = {}
    chosen: dict[str, frozenset[int]] = {}
    rest = text
    while rest:
        match = _LIMIT.match(rest)
        if match is None:
            raise _no_fuel(text, what)
        if match[2] is not None:
            counts[match[1]] = int(match[2])
        else:
            chosen[match[1]] = _numbers(match[3], text, what)
        rest = rest[match.end() :]
    return Fuel(None, counts, chosen)


def _numbers(items: str, text: str, what: str) -> frozenset[int]:
    """The numbers of ``1-5,8``."""
    found: set[int] = set()
    for item in items.split(",") if items.strip() else ():
        match = _RANGE.fullmatch(item)
        if match is None:
            raise _no_fuel(text, what)
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def fuel_ranges(numbers: Iterable[int]) -> str:
    """Numbers as :func:`parse_fuel` reads them: ``[1-5,8]``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return f"[{','.join(f'{a}-{b}' if b > a else str(a) for a, b in runs)}]"


def _no_fuel(text: str, what: str) -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"{what}={text} is not an amount of fuel",
        help="write a number, or name=number,name#2=number, or name=[1-5,8]",
    )
