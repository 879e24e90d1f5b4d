"""Read a checkpoint file through a memory map, every access checked against the file's size."""

from __future__ import annotations

import hashlib
import mmap
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from graphgen.atomic_write import open_regular
from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import Array

_SAMPLE_BYTES: Final = 64 * 1024
# Linux enters more than the page that is used: up to all that it keeps as one, a huge page at most.
_FAULT_BYTES: Final = 2 << 20
GET_IT_AGAIN: Final = "the file is incomplete: copy or download it again"


def unreadable(
    path: Path, what: str, *, offset: int | None = None, help: str = ""
) -> GraphgenError:
    """GG0601: a damaged or unusable checkpoint file.

    Args:
        path: the file.
        what: the defect.
        offset: the byte of the file where the defect is, when known.
        help: the next step for the user.
    """
    where = str(path) if offset is None else f"{path}, byte {offset}"
    return GraphgenError("GG0601", what, where=where, help=help)


def no_such_tensor(path: Path, name: str) -> GraphgenError:
    """GG0602: the checkpoint at ``path`` does not hold the tensor ``name``."""
    return GraphgenError("GG0602", f"there is no tensor '{name}'", where=str(path))


class MappedFile:
    """The bytes of one file, read-only; the operating system loads a page at its first use.

    Pages leave this process's memory with the last array that views them, so that a model is not in
    memory twice while it is loaded: the bytes of the file, and the weights made of them.

    The file must not become shorter while it is in use: the operating system would end the process.

    Args:
        path: the file to map.
        kind: the expected format, such as ``GGUF``; used in error messages.

    Raises:
        GraphgenError: GG0601 if the operating system refuses to open it.
    """

    __slots__ = ("_bytes", "kind", "path", "size")

    def __init__(self, path: Path, kind: str) -> None:
        self.path: Final = path
        self.kind: Final = kind
        self._bytes: mmap.mmap | bytes
        try:
            with open_regular(path) as file:
                self.size: Final = os.fstat(file.fileno()).st_size
                # An empty file cannot be mapped.
                self._bytes = (
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
                )
        except OSError as error:
            raise self.error(f"cannot open the file: {error.strerror or error}") from error

    def error(self, what: str, offset: int | None = None, help: str = "") -> GraphgenError:
        """GG0601 about this file, at byte ``offset`` when known."""
        return unreadable(self.path, what, offset=offset, help=help)

    def take(self, offset: int, count: int, what: str) -> bytes:
        """Copy the bytes ``offset`` to ``offset + count``.

        Raises:
            GraphgenError: GG0601 naming ``what`` if the file ends before.
        """
        self.require(offset, count, what)
        return self._bytes[offset : offset + count]

    def array(self, offset: int, count: int, dtype: np.dtype[np.generic], what: str) -> Array:
        """A read-only view [count] of the elements that start at byte ``offset``.

        Raises:
            GraphgenError: GG0601 naming ``what`` if the file ends before.
        """
        self.require(offset, count * dtype.itemsize, what)
        if not count:
            return np.empty(0, dtype)
        made = np.frombuffer(self._bytes, dtype, count, offset)
        # Slices and other views hold this array: NumPy follows views no further than to it.
        weakref.finalize(made, _forget, self._bytes, offset, made.nbytes).atexit = False
        return made

    def require(self, offset: int, count: int, what: str) -> None:
        """Require that the ``count`` bytes from ``offset`` are in the file (GG0601 naming what)."""
        if offset + count > self.size:
            raise self.error(
                f"the {self.kind} file is cut off: {what} needs {count} bytes here, "
                f"the file ends at byte {self.size}",
                offset,
                GET_IT_AGAIN,
            )

    def digest(self, header_end: int, spans: Iterable[tuple[int, int]], extra: bytes = b"") -> str:
        """SHA-256 of size, header and the two ends of each span, as 64 hexadecimal digits.

        Args:
            header_end: the bytes before this one are hashed whole.
            spans: (first byte, number of bytes) of each tensor.
            extra: more bytes that belong to the identity, such as a configuration file.
        """
        hasher = hashlib.sha256(f"{self.kind} {self.size} {header_end} {len(extra)}\n".encode())
        hasher.update(extra)
        hasher.update(self._bytes[:header_end])
        for start, count in spans:
            end = start + count
            hasher.update(self._bytes[start : min(end, start + _SAMPLE_BYTES)])
            hasher.update(self._bytes[max(start, end - _SAMPLE_BYTES) : end])
        _forget(self._bytes, 0, self.size)
        return hasher.hexdigest()


def _forget(content: mmap.mmap | bytes, offset: int, count: int) -> None:
    """Take the pages of these bytes out of this process's memory; a later use gets them again."""
    if isinstance(content, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        first = offset - offset % _FAULT_BYTES
        last = min(-(-(offset + count) // _FAULT_BYTES) * _FAULT_BYTES, len(content))
        content.madvise(mmap.MADV_DONTNEED, first, last - first)


class ByteCursor:
    """A position in a mapped file that only moves over bytes that are there.

    Attributes:
        file: the file.
        pos: offset of the next byte.
    """

    __slots__ = ("file", "pos")

    def __init__(self, file: MappedFile, pos: int = 0) -> None:
        self.file = file
        self.pos: int = pos

    def bytes(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes (GG0601 naming ``what`` if the file ends before)."""
        data = self.file.take(self.pos, count, what)
        self.pos += count
        return data

    def unsigned(self, size: int, what: str) -> int:
        """The next little-endian unsigned integer of ``size`` bytes (GG0601)."""
        return int.from_bytes(self.bytes(size, what), "little")
