"""A file in the shape of a NEFF."""

from __future__ import annotations

import io
import tarfile


def small_neff(content: bytes = b"{}") -> bytes:
    """A header and an archive of one file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        item = tarfile.TarInfo("info.json")
        item.size = len(content)
        archive.addfile(item, io.BytesIO(content))
    return b"neuronx-cc".ljust(1024, b"\0") + packed.getvalue()
