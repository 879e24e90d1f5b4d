"""The HLO modules of a folder: files ending in .pb, also those inside compressed archives."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path


@cache
def modules(folder: Path) -> dict[str, bytes]:
    """The bytes of each module, by its file's name."""
    found = {path.name: path.read_bytes() for path in sorted(folder.rglob("*.pb"))}
    for archive in sorted(folder.rglob("*.tar.*")):
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile() and member.name.endswith(".pb"):
                    data = opened.extractfile(member)
                    assert data is not None
                    found[Path(member.name).name] = data.read()
    assert found, "the folder has no HLO modules"
    return found
