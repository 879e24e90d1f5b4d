"""Artifacts: a compiled model as a folder, ready to run."""

from __future__ import annotations

from graphgen.runtime.artifact.artifact_folder import (
    MANIFEST,
    Artifact,
    is_artifact,
    open_artifact,
    save_artifact,
    take_weights,
    write_weights,
)

__all__ = [
    "MANIFEST",
    "Artifact",
    "is_artifact",
    "open_artifact",
    "save_artifact",
    "take_weights",
    "write_weights",
]
