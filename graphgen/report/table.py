"""Tables of text reports, aligned for a file and folded to the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from graphgen.errors import colored_text, printable


@dataclass(frozen=True, slots=True)
class Table:
    """Aligned columns.

    Attributes:
        headers: column titles.
        rows: one string per column.
        numeric: number of columns, from the second on, that are aligned to the right.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: int = 0


# Blocks of a report, a newline between them.
Report = str | Table | Sequence[str | Table]


def render(report: Report, stream: TextIO) -> str:
    """The text of a report, for ``stream``: colors and folded columns on a terminal only."""
    parts = [report] if isinstance(report, str | Table) else report
    # Names in a text come from files; colors in one are ours, and on a terminal alone.
    show = colored_text if stream.isatty() else printable
    return "\n".join(
        show(part) if isinstance(part, str) else _aligned(part, stream) for part in parts
    )


def _aligned(table: Table, stream: TextIO) -> str:
    from io import StringIO

    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    terminal = stream.isatty()
    out = StringIO()
    width = None if terminal else 10_000
    console = Console(file=out, force_terminal=terminal, width=width, highlight=False)
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, header in enumerate(table.headers):
        right = 1 <= index <= table.numeric
        grid.add_column(header, justify="right" if right else "left", overflow="fold")
    for row in table.rows:
        # Text, not str: rich would take brackets in names for markup.
        grid.add_row(*[Text(printable(cell)) for cell in row])
    console.print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
