"""Input and output files of commands; outputs are written atomically."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from graphgen.atomic_write import unwritable, write_whole
from graphgen.cli.console import write_stdout, write_stdout_bytes
from graphgen.errors import GraphgenError
from graphgen.read_file import is_folder, is_there, read_named

STANDARD = "-"


def standard_input() -> bytes:
    """Read all of standard input."""
    # One read() would lose an interruption between two of its system calls.
    stream = cast(BufferedReader, sys.stdin.buffer)
    return b"".join(iter(lambda: stream.read1(1 << 16), b""))


def check_output(name: str) -> None:
    """Refuse an output that cannot be written before any work is done for it (GG0704)."""
    path = Path(name)
    if name == STANDARD:
        return
    if is_folder(path):
        raise unwritable(name, "it is a folder", "name a file")
    if not is_folder(path.parent):
        raise unwritable(name, f"there is no folder '{path.parent}'", "create the folder first")


def write_text(name: str, text: str) -> None:
    """Write UTF-8 text to a file, whole or not at all, or to standard output for ``-`` (GG0704)."""
    if name == STANDARD:
        write_stdout(text)
    else:
        write_file(name, lambda file: file.write(text.encode("utf-8")))


def read_text(path: Path) -> str:
    """The text of a UTF-8 file (GG0705)."""
    try:
        return read_named(path).decode("utf-8")
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise GraphgenError("GG0705", f"cannot read {path}: {what}") from error


def write_bytes(name: str, chunks: Sequence[bytes | memoryview]) -> None:
    """Write bytes to a file, whole or not at all, or to standard output for ``-`` (GG0704)."""
    if name == STANDARD:
        write_stdout_bytes(chunks)
    else:
        write_file(name, lambda file: file.writelines(chunks))


def write_file(name: str, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a temporary file, then move it to ``name``.

    A device or a pipe is written in place.

    Raises:
        GraphgenError: GG0704 when it cannot be written; ``name`` is as it was before.
    """
    check_output(name)
    write_whole(Path(name), write)


def make_folder(name: str) -> Path:
    """The folder ``name``, created if it is not there (GG0704)."""
    path = Path(name)
    if is_there(path) and not is_folder(path):
        raise unwritable(name, "it is a file", "name a folder")
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(name, error.strerror or str(error)) from error
    return path
