"""Fuel: a limit on the rewrites of a pipeline, for bisecting wrong ones.

``100`` lets the pipeline make its first hundred rewrites and end there. ``cse=3,legalize=2`` lets
those passes make that many and continues with the next; ``cse#2=3`` is the second ``cse``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from graphgen.errors import GraphgenError


@dataclass(frozen=True, slots=True)
class Fuel:
    """A limit on rewrites.

    Attributes:
        total: over the whole pipeline, ``None`` for no limit.
        of_pass: of single passes, by label (:func:`labels`).
    """

    total: int | None = None
    of_pass: Mapping[str, int] = field(default_factory=dict[str, int])

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


_LIMIT = re.compile(r"([\w-]+(?:#\d+)?)=(\d+)")


def parse_fuel(text: str, what: str) -> Fuel:
    """Read ``100`` or ``cse=3,legalize=2``.

    Args:
        text: empty for no limit.
        what: the option or variable, for the error.

    Raises:
        GraphgenError: GG0705 for any other text.
    """
    if not text:
        return NO_LIMIT
    if text.isdecimal():
        return Fuel(int(text))
    matches = [_LIMIT.fullmatch(item.strip()) for item in text.split(",")]
    found = {match[1]: int(match[2]) for match in matches if match}
    if len(found) < len(matches):
        raise GraphgenError(
            "GG0705", f"{what}={text} is no fuel", help="write a number, or name=number,name#2=..."
        )
    return Fuel(None, found)
