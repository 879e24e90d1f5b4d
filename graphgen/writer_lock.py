"""Temporary files and folders of writers; the next writer removes leftovers of killed ones.

The writer holds a lock (``flock``) on them as long as it lives: the system releases the lock with
the process, whatever ends it. So what can be locked is abandoned. A file system without such locks
keeps what is left: nothing is removed on a guess. Only regular files and folders are looked at:
a link, a pipe or a device of such a name is not a writer's.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

# To find names in a folder, not to list it: Linux asks for no permission to read it.
FOLDER_FLAGS = int(getattr(os, "O_PATH", os.O_RDONLY)) | os.O_DIRECTORY


@contextmanager
def scratch(
    parent: Path, prefix: str, suffix: str, make: Callable[[str, int], object]
) -> Generator[Path]:
    """A new temporary file or folder in ``parent``; see :func:`scratch_in`."""
    folder = os.open(parent, FOLDER_FLAGS)
    try:
        with scratch_in(folder, prefix, suffix, make) as name:
            yield parent / name
    finally:
        os.close(folder)


@contextmanager
def scratch_in(
    parent: int, prefix: str, suffix: str, make: Callable[[str, int], object]
) -> Generator[str]:
    """A new temporary file or folder for a ``with`` block.

    Those of the same prefix and suffix whose writers are gone are removed first; this one at the
    end of the block, unless it has been renamed by then.

    Args:
        parent: the descriptor of the folder.
        prefix: the start of its name; the middle is random.
        suffix: the end of its name.
        make: creates it, from its name and the descriptor of the folder; it must fail for one that
            is there.

    Raises:
        OSError: it cannot be made.
    """
    _remove_abandoned(parent, prefix, suffix)
    while True:
        name = f"{prefix}{token_hex(6)}{suffix}"
        make(name, parent)
        lock = _lock(name, parent, wait=True)
        # Another writer may have found it before it was locked, and removed it.
        if _kind(name, parent):
            break
        _release(lock)
    try:
        yield name
    finally:
        _remove(name, parent)
        _release(lock)


def _remove_abandoned(parent: int, prefix: str, suffix: str) -> None:
    with suppress(OSError):
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=parent)
        try:
            names = os.listdir(listed)
        finally:
            os.close(listed)
        for name in names:
            if name.startswith(prefix) and name.endswith(suffix):
                lock = _lock(name, parent, wait=False)
                if lock is not None:
                    _remove(name, parent)
                    _release(lock)


def _kind(name: str, parent: int) -> int:
    """``S_IFREG``, ``S_IFDIR`` or another type of file; 0 for a name that is not there."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return 0


def _lock(name: str, parent: int, *, wait: bool) -> int | None:
    """The descriptor that holds the lock of a regular file or a folder.

    ``None`` where another process has it, the name is gone or of another type of file, or the file
    system has no locks.
    """
    import fcntl

    if _kind(name, parent) not in (stat.S_IFREG, stat.S_IFDIR):
        return None
    with suppress(OSError):
        # It may have become a link or a pipe in the meantime: neither is followed or waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        found = os.open(name, flags, dir_fd=parent)
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


def _remove(name: str, parent: int) -> None:
    if _kind(name, parent) == stat.S_IFDIR:
        shutil.rmtree(name, ignore_errors=True, dir_fd=parent)
    else:
        with suppress(OSError):
            os.unlink(name, dir_fd=parent)
