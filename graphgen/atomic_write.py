"""Write files whole or not at all, by the user's path or inside a folder without following links.

A file that a user names may be a symbolic link, and what it points to is written. A folder that
came from elsewhere may hold links that its author chose: no link below it is followed to write, and
none out of it to read.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from graphgen.errors import GraphgenError
from graphgen.limits import Limit, bound, stated

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


def is_being_written(parent: Path, prefix: str) -> bool:
    """True if another writer holds a temporary folder of :func:`scratch` with this prefix."""
    import fcntl

    with suppress(OSError):
        for path in parent.iterdir():
            if path.name.startswith(prefix) and path.is_dir() and not path.is_symlink():
                with suppress(FileNotFoundError):
                    found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
                    try:
                        fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    except BlockingIOError:
                        return True
                    finally:
                        os.close(found)
    return False


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


# Bytes of a file, or what writes them.
Content = bytes | Callable[[BinaryIO], object]
# File systems take no longer name of a file.
_NAME_BYTES = 255


def write_whole(path: Path, content: Content, *, parents: bool = False) -> None:
    """Write a file that takes the place of ``path`` when it is complete and on the disk.

    Args:
        path: a file that the user named: links are followed, a device or a pipe is written in
            place. :func:`write_inside` is for names inside of a folder.
        content: the bytes, or what writes them.
        parents: whether folders that are not there are created.

    Raises:
        GraphgenError: GG0704 when it cannot be written; ``path`` is as it was before.
    """
    with _writing(path):
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        real = path.resolve()
        if real.exists() and not real.is_file():
            with real.open("wb") as file:
                _fill(file, content)
            return
        parent = os.open(real.parent, FOLDER_FLAGS)
        try:
            _replace(parent, real.name, content)
        finally:
            os.close(parent)


def write_inside(root: Path, path: Path, content: Content, *, parents: bool = False) -> None:
    """Write a file inside of a folder, as :func:`write_whole`; no link below ``root`` is followed.

    Args:
        root: the folder, which the user named: it may be reached through links.
        path: the file, a path below ``root``.
        content: the bytes, or what writes them.
        parents: whether folders that are not there are created, ``root`` among them.

    Raises:
        GraphgenError: GG0703 for a path that leaves ``root``, goes through a symbolic link, or is
            there and not a regular file; GG0704 when it cannot be written. Nothing has changed.
    """
    with _writing(path), _folder_of(root, path, parents=parents) as (parent, name):
        _require_replaceable(parent, name, path)
        _replace(parent, name, content)


def copy_inside(source: Path, root: Path, path: Path, origin: Path | None = None) -> None:
    """Copy a regular file into a folder, piece by piece; otherwise as :func:`write_inside`.

    Args:
        source: the file.
        root, path: as for :func:`write_inside`.
        origin: the folder that came from elsewhere and has the source: see :func:`open_readable`.
    """

    def content(file: BinaryIO) -> None:
        with open_regular(source) if origin is None else open_readable(origin, source) as read:
            shutil.copyfileobj(read, file)

    write_inside(root, path, content)


def move_inside(source: Path, root: Path, path: Path) -> None:
    """Move a file or a folder into a folder; errors as of :func:`write_inside`.

    A file takes the place of a regular file; a folder must find its place free.
    """
    with _writing(path), _folder_of(root, path) as (parent, name):
        if source.is_dir():
            require_no_link(root, path)
        else:
            _require_replaceable(parent, name, path)
        os.replace(source, name, dst_dir_fd=parent)


def remove_inside(root: Path, path: Path) -> None:
    """Remove a file or a link inside of a folder unless it is gone; a link on the way is GG0703.

    Raises:
        GraphgenError: GG0703 as of :func:`write_inside`, GG0704 if it cannot be removed.
    """
    with _writing(path), suppress(FileNotFoundError), _folder_of(root, path) as (parent, name):
        os.unlink(name, dir_fd=parent)


def folder_inside(root: Path, path: Path) -> None:
    """Make a folder inside of a folder unless it is there; errors as of :func:`write_inside`."""
    with _writing(path), _folder_of(root, path / "_", parents=True):
        return


def open_inside(root: Path, path: Path, flags: int, *, parents: bool = False) -> int:
    """The descriptor of a file inside of a folder, opened without following a link below ``root``.

    Args:
        root: the folder, which the user named.
        path: the file, a path below ``root``.
        flags: of ``os.open``.
        parents: whether folders that are not there are created.

    Raises:
        GraphgenError: GG0703 as of :func:`write_inside`.
        OSError: it cannot be opened.
    """
    with _folder_of(root, path, parents=parents) as (parent, name):
        _require_replaceable(parent, name, path)
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=parent)


def require_no_link(root: Path, path: Path) -> None:
    """Refuse a path that goes through a symbolic link below ``root``, or is one (GG0703)."""
    with suppress(OSError), _folder_of(root, path) as (parent, name):
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise _in_the_way(path)


def require_place(root: Path, path: Path) -> None:
    """Refuse a path that :func:`write_inside` would refuse (GG0703), before any work is done."""
    with suppress(OSError), _folder_of(root, path) as (parent, name):
        _require_replaceable(parent, name, path)


def foreign_owner(folder: Path) -> str:
    """Who else may put files into a folder, as the rest of a sentence about it.

    That is its owner or the owner of a link in its place, unless it is this user or root, who may
    change what this user has anyway; or every user. Empty for a folder that is not there.
    """
    with suppress(OSError):
        there = folder.stat()
        for owner in (folder.lstat().st_uid, there.st_uid):
            if owner not in (0, os.geteuid()):
                return f"belongs to another user, {_user(owner)}"
        if there.st_mode & stat.S_IWOTH:
            return "can be written by every user: remove that permission with chmod o-w"
    return ""


def _user(number: int) -> str:
    import pwd

    with suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return str(number)


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read it; links are followed.

    Raises:
        OSError: it cannot be opened, or it is a pipe or a device, which might never end.
    """
    # A pipe without a writer would be waited for.
    return _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK), path)


def _regular(opened: int, path: Path) -> BufferedReader:
    mode = os.fstat(opened).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(opened, "rb")
    os.close(opened)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_regular(path: Path, most: int | Limit | None = None) -> bytes:
    """The content of a file that :func:`open_regular` opens.

    Args:
        path: the file.
        most: the bytes that are read at most.

    Raises:
        OSError: it cannot be opened, is not a regular file, or has more bytes.
    """
    with open_regular(path) as file:
        return _content(file, path, most)


def _content(file: BufferedReader, path: Path, most: int | Limit | None) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if most is not None and size > bound(most):
        what = f"it has {size} bytes, and {stated(most)} are read"
        raise OSError(errno.EFBIG, what, str(path))
    return file.read()


def open_readable(root: Path, path: Path) -> BufferedReader:
    """Open a regular file inside of a folder that came from elsewhere, to read it.

    Links to files of the same folder are followed, and those of the hub's cache to its ``blobs``;
    see :func:`places_of`. Every other link is of this machine, not of the folder.

    Args:
        root: the folder, which the user named: it may be reached through links.
        path: the file, a path below ``root``.

    Raises:
        OSError: it cannot be opened, is not a regular file, leaves ``root``, or is reached through
            a link that does.
    """
    try:
        name = plain_name(path.relative_to(root).as_posix())
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    try:
        opened = _open_unlinked(root, name)
    except _LinkError:
        # Unlike Path.resolve, it ends at a loop of links.
        target = Path(os.path.realpath(path))
        place = next((place for place in places_of(root) if target.is_relative_to(place)), None)
        if place is None or target == place:
            what = "it is a symbolic link out of its folder"
            raise OSError(errno.ELOOP, what, str(path)) from None
        try:
            opened = _open_unlinked(place, target.relative_to(place).as_posix())
        except _LinkError:
            # Put there since it was resolved.
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return _regular(opened, path)


def places_of(root: Path) -> list[Path]:
    """Folders whose files are of the content of ``root``, as real paths.

    They are the folder and, in the hub's cache, where ``snapshots/REVISION`` holds links, the
    ``blobs`` beside ``snapshots``.
    """
    home = root.resolve()
    blobs = [above.parent / "blobs" for above in home.parents if above.name == "snapshots"]
    return [home, *blobs]


class _LinkError(Exception):
    """A part of a path is a symbolic link."""


def _open_unlinked(root: Path, name: str) -> int:
    """Open a name below a folder to read it; no link below the folder is followed."""
    *folders, last = name.split("/")
    opened = os.open(root, FOLDER_FLAGS)
    try:
        for part in folders:
            inner = _without_link(part, FOLDER_FLAGS, opened)
            os.close(opened)
            opened = inner
        # A pipe without a writer would be waited for.
        return _without_link(last, os.O_RDONLY | os.O_NONBLOCK, opened)
    finally:
        os.close(opened)


def _without_link(name: str, flags: int, parent: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        if _kind(name, parent) == stat.S_IFLNK:
            raise _LinkError from None
        raise


def read_inside(root: Path, path: Path, most: int | Limit | None = None) -> bytes:
    """The content of a file that :func:`open_readable` opens; otherwise as :func:`read_regular`."""
    with open_readable(root, path) as file:
        return _content(file, path, most)


def private_folder(path: Path) -> None:
    """Make a folder that only this user may enter, unless it is there (GG0704)."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)


def plain_name(name: object) -> str:
    """The name of a file inside of a folder, as manifests, indexes and listings hold it.

    Returns:
        The name: parts divided by ``/``.

    Raises:
        ValueError: it is not a text, has ``..``, ``.``, an empty part, a NUL character or a part
            that is too long for a file, or begins with ``/``.
    """
    if not isinstance(name, str):
        raise ValueError(f"{name!r:.80} is not the name of a file")  # noqa: TRY004
    for part in name.split("/"):
        try:
            size = len(os.fsencode(part))
        except UnicodeEncodeError:
            size = _NAME_BYTES + 1
        if part in ("", ".", "..") or "\0" in part or size > _NAME_BYTES:
            raise ValueError(f"{name!r:.80} is not the name of a file inside of the folder")
    return name


@contextmanager
def _writing(path: Path) -> Generator[None]:
    """Turn an OSError into GG0704; a broken pipe is the reader's doing."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(str(path), error.strerror or str(error)) from error


@contextmanager
def _folder_of(root: Path, path: Path, *, parents: bool = False) -> Generator[tuple[int, str]]:
    """The descriptor of the folder that ``path`` is in, and the last part of its name.

    Each folder on the way from ``root`` is opened relative to the one before.
    """
    try:
        *folders, name = plain_name(path.relative_to(root).as_posix()).split("/")
    except ValueError as error:
        raise GraphgenError("GG0703", f"cannot write '{path}': {error}", help=_HELP) from error
    if parents:
        root.mkdir(parents=True, exist_ok=True)
    opened, at = os.open(root, FOLDER_FLAGS), root
    try:
        for part in folders:
            at /= part
            inner = _entered(opened, part, at, create=parents)
            os.close(opened)
            opened = inner
        yield opened, name
    finally:
        os.close(opened)


def _entered(parent: int, name: str, path: Path, *, create: bool) -> int:
    """The descriptor of a folder in a folder (GG0703 for a link)."""
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    try:
        return os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise _in_the_way(path) from None
        raise


def _require_replaceable(parent: int, name: str, path: Path) -> None:
    """Refuse a name that is there and not a regular file (GG0703)."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise _in_the_way(path)


def _in_the_way(path: Path) -> GraphgenError:
    what = "it is not a regular file"
    if path.is_symlink():
        target = ""
        with suppress(OSError):
            target = f" to '{path.readlink()}'"
        what = f"it is a symbolic link{target}, and links in this folder are not followed"
    return GraphgenError("GG0703", f"cannot write '{path}': {what}", help=_HELP)


_HELP = "delete it, or put a file or folder of its own in its place"


def _replace(parent: int, name: str, content: Content) -> None:
    """Write beside ``name`` and rename; what a killed writer left in the folder is removed."""
    with scratch_in(parent, ".graphgen-", ".part", _new_file) as part:
        opened = os.open(part, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        with open(opened, "wb") as file:
            _fill(file, content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, name, src_dir_fd=parent, dst_dir_fd=parent)


def _new_file(name: str, parent: int) -> None:
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=parent))


def _fill(file: BinaryIO, content: Content) -> None:
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
