"""Read files up to a size, with an error of ours: of others regular ones alone."""

from __future__ import annotations

import errno
import os
import select
import stat
from io import BufferedReader
from pathlib import Path

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.json_value import JsonError, parse_json
from graphgen.limits import JSON_BYTES, TEXT_BYTES, Limit, bound, stated

# Seconds that a named pipe without a writer is waited for.
_PATIENCE = 5.0


def open_named(path: str | Path) -> BufferedReader:
    """Open a file that a user names, which may be a pipe such as ``<(command)``.

    Raises:
        OSError: it cannot be opened, is a device, which may never end, or a pipe in a folder to
            which nothing writes.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(opened).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(opened, "rb")
    # A pipe that the shell makes has no place in a folder, and a writer.
    named = os.path.exists(os.path.realpath(path))
    if stat.S_ISFIFO(mode) and select.select([opened], [], [], _PATIENCE if named else None)[0]:
        os.set_blocking(opened, True)
        return os.fdopen(opened, "rb")
    os.close(opened)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    what = "nothing writes to the pipe" if stat.S_ISFIFO(mode) else "it is not a regular file"
    raise OSError(errno.EINVAL, what, str(path))


def read_named(path: str | Path, most: int | Limit = TEXT_BYTES) -> bytes:
    """The content of a file that :func:`open_named` opens.

    Raises:
        OSError: as of :func:`open_named`, or the file has more bytes.
        ValueError: no file can have the name.
    """
    with open_named(path) as file:
        data = file.read(bound(most) + 1)
    if len(data) > bound(most):
        raise OSError(errno.EFBIG, f"it has more bytes: {stated(most)} are read", str(path))
    return data


def read_file(path: str | Path, most: int | Limit = TEXT_BYTES, code: str = "GG0705") -> bytes:
    """The content of a file.

    Args:
        path: the file; links are followed.
        most: the bytes that are read at most.
        code: of the error.

    Raises:
        GraphgenError: the file is missing, larger, a folder, a pipe or a device, or its name is
            none that a file can have.
    """
    try:
        return read_regular(Path(path), most)
    except OSError as error:
        raise GraphgenError(
            code, f"cannot open the file: {error.strerror or error}", where=str(path)
        ) from error
    except ValueError as error:
        raise GraphgenError(code, f"cannot open the file: {error}", where=repr(path)) from error


def read_text_file(path: str | Path, most: int | Limit = TEXT_BYTES, code: str = "GG0705") -> str:
    """The text of a UTF-8 file; raises as :func:`read_file` does."""
    data = read_file(path, most, code)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"the file is not UTF-8 at byte {error.start}"
        raise GraphgenError(code, what, where=str(path)) from error


def read_json(
    path: str | Path, code: str = "GG0705", most: int | Limit = JSON_BYTES, *, finite: bool = False
) -> object:
    """The JSON value in a file.

    Args:
        path: the file; links are followed.
        code: of the error.
        most: the bytes that are read at most.
        finite: refuse ``NaN`` and ``Infinity``.

    Raises:
        GraphgenError: as of :func:`read_file`, and for what :func:`parse_json` refuses, with line
            and column.
    """
    data = read_file(path, most, code)
    try:
        return parse_json(data, most=most, finite=finite)
    except JsonError as error:
        where = f"{path}:{error.place}" if error.place else str(path)
        what = f"{Path(path).name} is not valid JSON: {error.reason}"
        raise GraphgenError(code, what, where=where) from error


def _kind(path: str | Path) -> int:
    """The type bits of what is at ``path``; 0 where nothing can be."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):
        return 0


def is_there(path: str | Path) -> bool:
    """True if something is at ``path``; of a name that no file can have, False."""
    return _kind(path) != 0


def is_file(path: str | Path) -> bool:
    """True if a regular file is at ``path``; of a name that no file can have, False."""
    return _kind(path) == stat.S_IFREG


def is_folder(path: str | Path) -> bool:
    """True if a folder is at ``path``; of a name that no file can have, False."""
    return _kind(path) == stat.S_IFDIR
