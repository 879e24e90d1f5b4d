"""Files of a cache at a URL such as ``s3://bucket/folder``, read and written through fsspec.

A file appears whole or not at all: object stores put it at once, elsewhere it is written beside its
place and renamed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, cast
from uuid import uuid4

from graphgen.atomic_write import plain_name, unreadable, unwritable, write_inside
from graphgen.errors import GraphgenError

# Protocols whose stores make an object visible when all of it is there.
_AT_ONCE = frozenset(
    ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "r2", "memory", "hf")
)


class FileSystem(Protocol):
    """The methods of ``fsspec.AbstractFileSystem`` that are used."""

    protocol: str | tuple[str, ...]

    def ls(self, path: str, detail: bool = True) -> list[dict[str, object]]:
        """The files and folders in a folder: at least ``name`` and ``size`` of each."""
        ...

    def cat_file(self, path: str) -> bytes:
        """A file."""
        ...

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> object:
        """Write a file; FileExistsError in mode ``create``."""
        ...

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder and those above it."""
        ...

    def mv(self, path1: str, path2: str) -> object:
        """Move a file."""
        ...

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget listings."""
        ...

    def modified(self, path: str) -> object:
        """A datetime."""
        ...


class CacheStore:
    """The folders of compilations below a URL.

    Args:
        url: with a protocol that fsspec knows.

    Raises:
        GraphgenError: GG0705 without fsspec, or without its package for the protocol.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._system, self._root = _opened(self.url)
        names = self._system.protocol
        names = (names,) if isinstance(names, str) else names
        self._at_once = not _AT_ONCE.isdisjoint(names)

    def folders(self, version: str = "") -> list[str]:
        """``neuronxcc-VERSION/MODULE_...`` of every compilation, sorted (GG0705)."""
        wanted = f"neuronxcc-{version}"
        versions = [name for name in self._names("") if name.startswith(wanted)]
        if version:
            versions = [name for name in versions if name == wanted]
        return [
            f"{outer}/{name}"
            for outer in sorted(versions)
            for name in sorted(self._names(outer))
            if name.startswith("MODULE_")
        ]

    def files(self, folder: str) -> Mapping[str, int]:
        """Bytes of the files in a folder by name; empty for a missing folder (GG0705)."""
        return {
            name: size for name, size in self._names(folder).items() if not name.endswith(".part")
        }

    def _names(self, folder: str) -> dict[str, int]:
        path = self._path(folder)
        with self._reading(path):
            self._system.invalidate_cache()
            try:
                rows = self._system.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return {}
        found: dict[str, int] = {}
        for row in rows:
            name = str(row["name"]).rstrip("/").rpartition("/")[2]
            with suppress(ValueError):
                # Others are of no entry: an object's key may be any text.
                found[plain_name(name)] = cast(int, row.get("size") or 0)
        return found

    def read(self, folder: str, name: str) -> bytes:
        """A file (GG0705)."""
        path = self._path(folder, name)
        with self._reading(path):
            return self._system.cat_file(path)

    def fetch(self, folder: str, name: str, root: Path) -> None:
        """Copy a file to ``root/folder/name`` on this machine, whole or not at all.

        Raises:
            GraphgenError: GG0705 if it cannot be read, GG0704 if it cannot be written, GG0703 for
                a symbolic link below ``root``.
        """
        write_inside(root, root / folder / name, self.read(folder, name), parents=True)

    def modified(self, folder: str, name: str) -> float:
        """When a file was written, in seconds since 1970 (GG0705)."""
        path = self._path(folder, name)
        with self._reading(path):
            stamp = self._system.modified(path)
        return float(getattr(stamp, "timestamp", lambda: 0.0)())

    def write(self, folder: str, name: str, content: bytes) -> None:
        """Write a file, in the place of one that is there (GG0704)."""
        path = self._path(folder, name)
        with self._writing(path):
            if self._at_once:
                self._system.pipe_file(path, content)
                return
            self._system.makedirs(self._path(folder), exist_ok=True)
            part = f"{path}.{uuid4().hex}.part"
            self._system.pipe_file(part, content)
            self._system.mv(part, path)

    def create(self, folder: str, name: str, content: bytes) -> bool:
        """Write a file unless there is one: False then (GG0704).

        Two writers at the same moment: object stores let one of them win, elsewhere the last one.
        """
        if name in self.files(folder):
            return False
        if not self._at_once:
            self.write(folder, name, content)
            return True
        path = self._path(folder, name)
        with self._writing(path):
            try:
                self._system.pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
        return True

    def remove(self, folder: str, name: str) -> None:
        """Remove a file that may be there (GG0704)."""
        path = self._path(folder, name)
        with self._writing(path):
            try:
                self._system.rm_file(path)
            except FileNotFoundError:
                return

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder, where the store has folders at all."""
        try:
            self._system.rmdir(self._path(folder))
        except Exception:
            # Of no consequence, and every store has its own.
            return

    def _path(self, *parts: str) -> str:
        return "/".join([self._root.rstrip("/"), *[part for part in parts if part]])

    @contextmanager
    def _reading(self, path: str) -> Generator[None]:
        try:
            yield
        except Exception as error:
            # Stores have errors of their own for credentials, networks and permissions.
            raise unreadable(f"{self.url} ({path})", error, _HELP) from error

    @contextmanager
    def _writing(self, path: str) -> Generator[None]:
        try:
            yield
        except Exception as error:
            raise unwritable(f"{self.url} ({path})", str(error) or repr(error), _HELP) from error


_HELP = "check the URL and its credentials, or choose a folder with --cache-dir"


def _opened(url: str) -> tuple[FileSystem, str]:
    """The file system of a URL, and the path in it (GG0705)."""
    try:
        from fsspec.core import url_to_fs  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
    except ImportError as error:
        what = f"the cache {url} is a URL, and fsspec is not installed"
        raise GraphgenError(
            "GG0705", what, help="pip install 'graphgen-compiler[cache]'"
        ) from error
    try:
        system, path = cast("tuple[FileSystem, str]", url_to_fs(url))
    except Exception as error:
        raise GraphgenError(
            "GG0705",
            f"the cache {url} cannot be opened: {error}",
            help="install fsspec's package for this protocol, such as s3fs for s3://",
        ) from error
    return system, path
