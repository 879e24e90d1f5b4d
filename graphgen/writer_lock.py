"""Temporary files and folders of writers; the next writer removes leftovers of killed ones.

The writer holds a lock (``flock``) on them as long as it lives: the system releases the lock with
the process, whatever ends it. So what can be locked is abandoned. A file system without such locks
keeps what is left: nothing is removed on a guess.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path


@contextmanager
def scratch(
    parent: Path, prefix: str, suffix: str, make: Callable[[Path], object]
) -> Generator[Path]:
    """A new temporary file or folder in ``parent`` for a ``with`` block.

    Those of the same prefix and suffix whose writers are gone are removed first; this one at the
    end of the block, unless it has been renamed by then.

    Args:
        parent: the folder.
        prefix: the start of its name; the middle is random.
        suffix: the end of its name.
        make: creates it, such as ``Path.mkdir``; it must fail for one that is there.

    Raises:
        OSError: it cannot be made.
    """
    _remove_abandoned(parent, f"{escape(prefix)}*{escape(suffix)}")
    while True:
        path = parent / f"{prefix}{secrets.token_hex(6)}{suffix}"
        make(path)
        lock = _lock(path, wait=True)
        # Another writer may have found it before it was locked, and removed it.
        if path.exists():
            break
        _release(lock)
    try:
        yield path
    finally:
        _remove(path)
        _release(lock)


def _remove_abandoned(parent: Path, pattern: str) -> None:
    for path in parent.glob(pattern):
        lock = _lock(path, wait=False)
        if lock is not None:
            _remove(path)
            _release(lock)


def _lock(path: Path, *, wait: bool) -> int | None:
    """The descriptor that holds the lock of a path.

    ``None`` where another process has it, the path is gone, or the file system has no locks.
    """
    import fcntl

    with suppress(OSError):
        found = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(found, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(found)
            raise
        return found
    return None


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
