"""Terminal output: text, JSON and tables on stdout, notes and errors on stderr."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO, cast

import typer

from graphgen.errors import GraphgenError, printable
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.report.table import Report


def colored(stream: TextIO) -> bool:
    """True if ``stream`` is a terminal with colors enabled (https://no-color.org)."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and stream.isatty()


def write_stdout(text: str) -> None:
    """Write ``text`` to standard output, now.

    Raises:
        BrokenPipeError: closed by its reader; :mod:`graphgen.cli.command_errors` ends quietly.
        GraphgenError: GG0704 when it cannot be written, such as on a full disk.
    """
    with _written():
        _open_stdout().write(text)
        sys.stdout.flush()


def _open_stdout() -> TextIO:
    """Standard output; Python has none where the caller has closed it (``>&-``)."""
    stream = cast("TextIO | None", sys.stdout)
    if stream is None or stream.closed:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return stream


def write_stdout_bytes(chunks: Sequence[bytes | memoryview]) -> None:
    """Write bytes to standard output, now; raises as :func:`write_stdout` does.

    Raises:
        GraphgenError: GG0704 for bytes that are not text where a terminal reads them.
    """
    with _written():
        terminal = _open_stdout().isatty()
    if terminal and not _is_text(chunks):
        raise GraphgenError(
            "GG0704",
            "these bytes are not text, and standard output is a terminal",
            help="name a file with -o, or pipe the output on",
        )
    with _written():
        sys.stdout.buffer.writelines(chunks)
        sys.stdout.buffer.flush()


def _is_text(chunks: Sequence[bytes | memoryview]) -> bool:
    try:
        b"".join(chunks).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in b"".join(chunks)


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
    """Redirect standard output to nowhere: Python would write the rest of it at exit."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)


def write_json(facts: Json) -> None:
    """Write one JSON value and a newline to stdout."""
    write_stdout(json.dumps(facts, ensure_ascii=False, allow_nan=False) + "\n")


def emit(as_json: bool, facts: Callable[[], Json], report: Callable[[], Report]) -> None:
    """Write a result to stdout, as JSON or as text; only the form that is written is computed."""
    if as_json:
        write_json(facts())
    else:
        write_report(report())


def write_report(report: Report) -> None:
    """Write text and tables to stdout."""
    from graphgen.report.table import render

    with _written():
        stream = _open_stdout()
    write_stdout(render(report, stream))


def note(text: str) -> None:
    """Print a remark on stderr, such as a default that was chosen."""
    print(printable(f"note: {text}"), file=sys.stderr)


class Reported(Protocol):
    """Report of a pass: its name and remarks."""

    @property
    def name(self) -> str:
        """The pass with its options."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """Remarks to the user."""
        ...


def note_remarks(reports: Sequence[Reported]) -> None:
    """Print the remarks of passes on stderr."""
    for report in reports:
        for remark in report.remarks:
            note(f"{report.name}: {remark}")


def write_error(error: GraphgenError) -> None:
    """Print the error on stderr, in colors on a terminal."""
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
    """Color a unified diff: removals red, additions green."""
    colors = {"-": "red", "+": "green", "@": "cyan", "#": "bright_black"}
    painted = [
        typer.style(line, fg=colors[line[0]], bold=line.startswith(("---", "+++")))
        if line[:1] in colors
        else line
        for line in text.split("\n")
    ]
    return "\n".join(painted)
