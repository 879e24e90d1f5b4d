"""Compiled models as folders, ready to run: on this machine and on devices."""

from __future__ import annotations

from graphgen.runtime.artifact.artifact_folder import (
    MANIFEST,
    Artifact,
    is_artifact,
    require_place,
    save_artifact,
    take_weights,
    write_weights,
)
from graphgen.runtime.artifact.open_artifact import is_for_device, open_artifact

__all__ = [
    "MANIFEST",
    "Artifact",
    "is_artifact",
    "is_for_device",
    "open_artifact",
    "require_place",
    "save_artifact",
    "take_weights",
    "write_weights",
]
