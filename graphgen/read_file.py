"""Read files of others: regular files alone, up to a size, with an error of ours."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.json_value import JsonError, parse_json
from graphgen.limits import JSON_BYTES, TEXT_BYTES, Limit


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
