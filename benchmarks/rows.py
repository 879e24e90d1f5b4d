"""What every benchmark reports: rows of one form, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphgen.atomic_write import write_whole


@dataclass(frozen=True, slots=True)
class Row:
    """One case, measured for graphgen and for something to compare it with.

    Attributes:
        case: what was measured.
        ours_s: seconds graphgen takes.
        peer: what it is compared with, e.g. ``jax 0.10.2``.
        peer_s: seconds the peer takes.
        extra: further figures by name.
    """

    case: str
    ours_s: float
    peer: str
    peer_s: float
    extra: Mapping[str, int | float | str] = field(default_factory=dict[str, int | float | str])

    @property
    def ratio(self) -> float:
        """How many times as long the peer takes: above 1, graphgen is faster."""
        return self.peer_s / self.ours_s

    def as_json(self) -> dict[str, int | float | str]:
        """``{case, ours_s, peer, peer_s, ratio}`` and the further figures."""
        own = {"case": self.case, "ours_s": self.ours_s, "peer": self.peer, "peer_s": self.peer_s}
        return {**own, "ratio": self.ratio, **self.extra}


def table(rows: Sequence[Row], extra: Sequence[str] = ()) -> str:
    """The rows in aligned columns, with the further figures named in ``extra``."""
    lines = [["case", "ours s", "peer", "peer s", "ratio", *extra]]
    for row in rows:
        times = [f"{row.ours_s:.3f}", row.peer, f"{row.peer_s:.3f}", f"{row.ratio:.2f}"]
        lines.append([row.case, *times, *[_cell(row.extra.get(name, "")) for name in extra]])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    # Names to the left, figures to the right.
    names = (0, 2)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index in names else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cell(value: int | float | str) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a JSON array; the file is whole, or what it was before."""
    text = json.dumps([row.as_json() for row in rows], indent=2) + "\n"
    write_whole(path, text.encode())
