"""Open an artifact of this CPU, or a folder that was compiled for a device."""

from __future__ import annotations

from pathlib import Path

from graphgen.json_value import OTHER_FORM
from graphgen.runtime.artifact.artifact_folder import (
    DEVICE_KIND,
    MANIFEST,
    Artifact,
    read_artifact,
)
from graphgen.runtime.folders import read_json


def is_for_device(path: Path) -> bool:
    """True for a folder that ``graphgen compile`` has written: it runs on devices alone."""
    try:
        return read_json(path / MANIFEST).get("kind") == DEVICE_KIND
    except (OSError, *OTHER_FORM):
        return False


def open_artifact(path: Path, *, trust: bool = False) -> Artifact:
    """Open a compiled model, for the CPU or a device, and check that it is complete.

    Args:
        path: the folder.
        trust: load its machine code without a signature of this user, too.

    Raises:
        GraphgenError: GG0703 as of :func:`~graphgen.runtime.artifact.artifact_folder.read_artifact`
            and of :func:`~graphgen.runtime.artifact.device_artifact.open_device_artifact`.
    """
    if not is_for_device(path):
        return read_artifact(path, trust=trust)
    # Only here: what runs on this CPU starts without it.
    from graphgen.runtime.artifact.device_artifact import open_device_artifact

    return open_device_artifact(path, trust=trust)
