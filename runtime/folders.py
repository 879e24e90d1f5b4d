"""Write a folder atomically: it appears under its name when it is complete, or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import cast

from graphgen.atomic_write import is_being_written, read_inside, scratch
from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.limits import JSON_BYTES
from graphgen.read_file import is_folder, is_there

_KEY = "checksum"


def sealed(content: Mapping[str, object]) -> bytes:
    """The text of a manifest, as it is kept in a file; an earlier checksum in it is replaced."""
    bare = {key: value for key, value in content.items() if key != _KEY}
    digest = hashlib.sha256(json.dumps(bare, indent=1).encode()).hexdigest()
    return json.dumps({**bare, _KEY: digest}, indent=1).encode()


def read_json(path: Path) -> dict[str, object]:
    """A manifest with its checksum, which :func:`require_sealed` compares.

    It is the file of its folder: a link out of that is refused.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON.
        TypeError: it is not an object.
    """
    content = parse_json(read_inside(path.parent, path, JSON_BYTES))
    if not isinstance(content, dict):
        raise TypeError(f"a JSON object is expected, not {type(content).__name__}")
    return cast("dict[str, object]", content)


def require_sealed(path: Path, content: Mapping[str, object]) -> None:
    """Compare the file with what :func:`sealed` makes of its content.

    A reader looks at versions first: another version may seal otherwise.

    Raises:
        ValueError: a byte of the file was changed.
    """
    if read_inside(path.parent, path, JSON_BYTES) != sealed(content):
        raise ValueError(f"{path.name} was changed")


@contextmanager
def new_folder(path: Path, content: str, occupied: str) -> Generator[Path]:
    """Yield a temporary folder beside ``path`` and rename it to ``path`` at the end of the block.

    Args:
        path: the new folder; an existing one must be empty.
        content: the content for the error text, such as ``the weights``.
        occupied: the error text for a ``path`` that is taken.

    Raises:
        GraphgenError: GG0704 if ``path`` is taken, or an OSError occurs in the block. The temporary
            folder is removed after any exception, and by the next writer of ``path`` if this one
            is killed.
    """
    _require_free(path, content, occupied)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(path.parent, _partial(path)) as temporary:
            yield temporary
            # It is private until here; the result is as readable as any new folder.
            temporary.chmod(0o755)
            os.replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _by_another(path, content, "has written") from error
        raise _unwritable(path, content, error) from error


def _unwritable(path: Path, content: str, error: OSError) -> GraphgenError:
    return GraphgenError(
        "GG0704",
        f"cannot write {content} {path}: {error.strerror or error}",
        help="nothing was written; free some space or choose another folder",
    )


def require_new_folder(path: Path, content: str, occupied: str) -> None:
    """Refuse a folder that :func:`new_folder` could not make, before any work is done for it.

    Arguments and errors are those of :func:`new_folder`. Folders above that are not there are made
    and removed again.
    """
    _require_free(path, content, occupied)
    missing = [above for above in path.absolute().parents if not above.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch(path.parent, f".{path.name}.try-", "", _private_folder):
            pass
    except OSError as error:
        raise _unwritable(path, content, error) from error
    finally:
        for above in missing:
            with suppress(OSError):
                above.rmdir()


def _require_free(path: Path, content: str, occupied: str) -> None:
    if is_there(path) and (not is_folder(path) or any(path.iterdir())):
        raise GraphgenError("GG0704", occupied, help="choose a new or empty folder")
    if is_being_written(path.parent, _partial(path)):
        raise _by_another(path, content, "writes")


def _partial(path: Path) -> str:
    return f".{path.name}.partial-"


def _by_another(path: Path, content: str, does: str) -> GraphgenError:
    return GraphgenError(
        "GG0704",
        f"cannot write {content} {path}: another process {does} it",
        help="run the command again when that is done, or choose another folder",
    )


def scratch_folder(parent: Path, prefix: str) -> AbstractContextManager[Path]:
    """A private folder in ``parent`` for a ``with`` block, removed at its end unless renamed.

    Those that killed writers left under the same prefix are removed first: see
    :mod:`graphgen.atomic_write`.
    """
    return scratch(parent, prefix, "", _private_folder)


def _private_folder(name: str, parent: int) -> None:
    os.mkdir(name, 0o700, dir_fd=parent)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON object and flush it to the disk."""
    write_flushed(path, json.dumps(content, indent=1).encode())


def write_flushed(path: Path, content: bytes) -> None:
    """Write a file and flush it to the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
