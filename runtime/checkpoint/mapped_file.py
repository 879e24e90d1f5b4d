"""Map a checkpoint file into memory, and check every access against the size of the file."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import Array

_SAMPLE_BYTES: Final = 64 * 1024
GET_IT_AGAIN: Final = "the file is incomplete: copy or download it again"


def unreadable(
    path: Path, what: str, *, offset: int | None = None, help: str = ""
) -> GraphgenError:
    """The error of a damaged or unusable checkpoint file.

    Args:
        path: the file.
        what: what is wrong with it.
        offset: the byte of the file where it is wrong, when known.
        help: what to do next.
    """
    where = str(path) if offset is None else f"{path}, byte {offset}"
    return GraphgenError("GG0601", what, where=where, help=help)


class MappedFile:
    """The bytes of one file, read-only; nothing is read until it is asked for.

    The file must not become shorter while it is in use: the operating system would end the process.

    Args:
        path: the file to map.
        kind: what the caller takes it for, such as ``GGUF``; used in error messages.

    Raises:
        GraphgenError: GG0601 if the operating system refuses to open it.
    """

    __slots__ = ("_bytes", "kind", "path", "size")

    def __init__(self, path: Path, kind: str) -> None:
        self.path: Final = path
        self.kind: Final = kind
        self._bytes: mmap.mmap | bytes
        try:
            with path.open("rb") as file:
                self.size: Final = os.fstat(file.fileno()).st_size
                # An empty file cannot be mapped.
                self._bytes = (
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
                )
        except OSError as error:
            raise unreadable(path, f"cannot open the file: {error.strerror}") from error

    def take(self, offset: int, count: int, what: str) -> bytes:
        """The bytes ``offset`` to ``offset + count``, copied.

        Raises:
            GraphgenError: GG0601 naming ``what`` if the file ends before.
        """
        self._require(offset, count, what)
        return self._bytes[offset : offset + count]

    def array(self, offset: int, count: int, dtype: np.dtype[np.generic], what: str) -> Array:
        """A read-only view of ``count`` elements that start at byte ``offset``.

        Raises:
            GraphgenError: GG0601 naming ``what`` if the file ends before.
        """
        self._require(offset, count * dtype.itemsize, what)
        if not count:
            return np.empty(0, dtype)
        return np.frombuffer(self._bytes, dtype, count, offset)

    def _require(self, offset: int, count: int, what: str) -> None:
        if offset + count > self.size:
            raise unreadable(
                self.path,
                f"the {self.kind} file is cut off: {what} needs {count} bytes here, "
                f"the file ends at byte {self.size}",
                offset=offset,
                help=GET_IT_AGAIN,
            )

    def digest(self, header_end: int, spans: Iterable[tuple[int, int]], extra: bytes = b"") -> str:
        """SHA-256 of size, header and the two ends of each span, as hexadecimal digits.

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
        return hasher.hexdigest()
