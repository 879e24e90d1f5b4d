"""The HLO modules of a folder: the .pb files of its compressed archives, else its own."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path


@cache
def modules(folder: Path) -> dict[str, bytes]:
    """The bytes of each module, by its file's name."""
    archives = sorted(folder.rglob("*.tar.*"))
    # Beside archives lie files of dumps, among them protobufs of other messages.
    loose = [] if archives else sorted(folder.rglob("*.pb"))
    found = {path.name: path.read_bytes() for path in loose}
    for archive in archives:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile() and member.name.endswith(".pb"):
                    data = opened.extractfile(member)
                    assert data is not None
                    found[Path(member.name).name] = data.read()
    assert found, "the folder has no HLO modules"
    return found
