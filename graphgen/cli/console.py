"""Writing to the terminal: text, JSON and tables on stdout, notes and errors on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

import typer

from graphgen.errors import GraphgenError

# What JSON output is made of.
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def colored(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that wants colors (https://no-color.org)."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and stream.isatty()


def write_stdout(text: str) -> None:
    """Write ``text`` to standard output, now.

    Raises:
        BrokenPipeError: the reader has left; :mod:`graphgen.cli.command_errors` ends quietly.
        GraphgenError: GG0704 when it cannot be written, such as on a full disk.
    """
    with _written():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_stdout_bytes(chunks: Sequence[bytes | memoryview]) -> None:
    """Write bytes to standard output, now; raises as :func:`write_stdout` does."""
    with _written():
        sys.stdout.buffer.writelines(chunks)
        sys.stdout.buffer.flush()


@contextmanager
def _written() -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon_stdout()
        raise GraphgenError(
            "GG0704", f"cannot write to standard output: {error.strerror}"
        ) from error


def abandon_stdout() -> None:
    """Give up standard output, so that Python does not try to write the rest of it at exit."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)


def write_json(facts: Json) -> None:
    """One JSON value and a newline on stdout."""
    write_stdout(json.dumps(facts, ensure_ascii=False, allow_nan=False) + "\n")


def number(value: float) -> float | str:
    """A number as JSON can hold it: what is not finite becomes ``nan``, ``inf`` or ``-inf``."""
    return value if math.isfinite(value) else str(value)


def note(text: str) -> None:
    """A remark on stderr, such as a default that was chosen."""
    print(f"note: {text}", file=sys.stderr)


class Reported(Protocol):
    """What passes are reported as."""

    @property
    def name(self) -> str:
        """The pass with its options."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """What it has to say."""
        ...


def note_remarks(reports: Sequence[Reported]) -> None:
    """What passes have to say, on stderr."""
    for report in reports:
        for remark in report.remarks:
            note(f"{report.name}: {remark}")


def write_error(error: GraphgenError) -> None:
    """The error on stderr, in colors if it is a terminal."""
    text = str(error)
    if colored(sys.stderr):
        text = "\n".join(map(_paint, text.split("\n")))
    print(text, file=sys.stderr)


def _paint(line: str) -> str:
    if line.startswith("error["):
        head, _, rest = line.partition(":")
        return f"{typer.style(head, fg='red', bold=True)}:{rest}"
    for prefix, color in (("  -->", "blue"), ("   |", "blue"), ("  help:", "green")):
        if line.startswith(prefix):
            return typer.style(prefix, fg=color, bold=True) + line[len(prefix) :]
    return line


def paint_diff(text: str) -> str:
    """A unified diff in the colors people know."""
    colors = {"-": "red", "+": "green", "@": "cyan", "#": "bright_black"}
    painted = [
        typer.style(line, fg=colors[line[0]], bold=line.startswith(("---", "+++")))
        if line[:1] in colors
        else line
        for line in text.split("\n")
    ]
    return "\n".join(painted)


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO, *, numeric: int = 0
) -> str:
    """Aligned columns as text: as wide as they need for a file, folded for a terminal.

    Args:
        headers: column titles.
        rows: one string a column.
        stream: where it will be written.
        numeric: how many columns, from the second on, are aligned to the right.
    """
    from io import StringIO

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = stream.isatty()
    out = StringIO()
    width = None if terminal else 10_000
    console = Console(file=out, force_terminal=terminal, width=width, highlight=False)
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, header in enumerate(headers):
        right = 1 <= index <= numeric
        grid.add_column(header, justify="right" if right else "left", overflow="fold")
    for row in rows:
        # Text, not str: names may hold brackets, which rich would take for markup.
        grid.add_row(*[Text(cell) for cell in row])
    console.print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
