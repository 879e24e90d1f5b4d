"""Writing files whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from graphgen.errors import GraphgenError
from graphgen.writer_lock import scratch


def write_whole(
    path: Path, content: bytes | Callable[[BinaryIO], object], *, parents: bool = False
) -> None:
    """Write a file that takes the place of ``path`` when it is complete and on the disk.

    Args:
        path: a device or a pipe is written in place.
        content: the bytes, or what writes them.
        parents: whether folders that are not there are created.

    Raises:
        GraphgenError: GG0704 when it cannot be written; ``path`` is as it was before.
    """
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        real = path.resolve()
        if real.exists() and not real.is_file():
            with real.open("wb") as file:
                _fill(file, content)
        else:
            _replace(real, content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(str(path), error.strerror or str(error)) from error


def _replace(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write beside ``path`` and rename; what a killed writer left in the folder is removed."""
    with scratch(path.parent, ".graphgen-", ".part", lambda part: part.open("xb").close()) as part:
        with part.open("wb") as file:
            _fill(file, content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


def _fill(file: BinaryIO, content: bytes | Callable[[BinaryIO], object]) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        content(file)


def unwritable(name: str, reason: str, help: str = "") -> GraphgenError:
    """The error (GG0704) of a file that cannot be written."""
    return GraphgenError("GG0704", f"cannot write '{name}': {reason}", help=help)


def unreadable(name: str, error: Exception, help: str = "") -> GraphgenError:
    """The error (GG0705) of an input file that cannot be read."""
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return GraphgenError("GG0705", f"cannot read '{name}': {reason}", help=help)
