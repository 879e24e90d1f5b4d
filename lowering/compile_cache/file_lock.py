"""A lock between processes on a file, released by the system when its holder ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from graphgen.atomic_write import open_inside

_POLL_SECONDS = 0.05


@contextmanager
def file_lock(root: Path, path: Path, waiting: Callable[[], object]) -> Generator[None]:
    """Hold the lock of ``path`` for a ``with`` block; the file is removed at its end.

    Args:
        root: the folder that the user named; no symbolic link below it is followed.
        path: the file below it, created with its folder.
        waiting: called again and again while another process has the lock.

    Raises:
        GraphgenError: GG0703 for a symbolic link, or what is not a regular file.
        OSError: the file cannot be created.
    """
    held = _acquired(root, path)
    while held is None:
        waiting()
        time.sleep(_POLL_SECONDS)
        held = _acquired(root, path)
    try:
        yield
    finally:
        _release(path, held)


@contextmanager
def lock_if_free(root: Path, path: Path) -> Generator[bool]:
    """The same without waiting: False in the block if another process has the lock."""
    held = _acquired(root, path)
    try:
        yield held is not None
    finally:
        if held is not None:
            _release(path, held)


def is_locked(path: Path) -> bool:
    """True if a process has the lock; a file that a killed process left is not locked."""
    import fcntl

    try:
        found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(found)


def _acquired(root: Path, path: Path) -> int | None:
    """The descriptor that holds the lock; ``None`` while another process does."""
    import fcntl

    while True:
        try:
            found = open_inside(root, path, os.O_RDWR | os.O_CREAT, parents=True)
        except FileNotFoundError:
            # The folder was removed by the holder, which had nothing to keep in it.
            continue
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(found)
            return None
        if _is(found, path):
            return found
        os.close(found)


def _release(path: Path, held: int) -> None:
    """Remove the file and give up its lock.

    It is removed while it is held: who waits for this file finds that it is gone, and starts over.
    """
    with suppress(OSError):
        path.unlink()
    os.close(held)


def _is(descriptor: int, path: Path) -> bool:
    """True if the path still names the file that was opened."""
    try:
        there, opened = path.lstat(), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)
