"""The files of a kit: its manifest, its cases, and whether they are as they were written."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from graphgen.runtime.device_kit.runner.kit_types import FORMAT, KIT, MANIFEST, KitCase, Manifest


class KitError(Exception):
    """The kit cannot be used."""


def read_manifest(kit: Path) -> tuple[Manifest, str]:
    """The manifest and its SHA-256 (KitError)."""
    try:
        data = (kit / MANIFEST).read_bytes()
        content = cast(Manifest, json.loads(data))
        if content["kind"] != KIT or content["format"] != FORMAT:
            raise KitError(f"{MANIFEST} is none of this runner's kits")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KitError(f"{MANIFEST} cannot be read: {error}; unpack the kit again") from error
    return content, hashlib.sha256(data).hexdigest()


def require_files(kit: Path, content: Manifest) -> None:
    """Compare every file with its hash (KitError)."""
    for name, expected in content["files"].items():
        try:
            found = hashlib.sha256((kit / name).read_bytes()).hexdigest()
        except OSError as error:
            raise KitError(f"{name} is missing; unpack the kit again") from error
        if found != expected:
            raise KitError(f"{name} was changed; unpack the kit again")


def chosen(cases: Sequence[KitCase], patterns: Sequence[str]) -> list[KitCase]:
    """The cases whose names match one of the patterns, or begin with one; all without patterns."""
    return [
        case
        for case in cases
        if not patterns or any(_matches(case["name"], pattern) for pattern in patterns)
    ]


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")
