"""The files of a kit: its manifest, its cases, and whether they are as they were written."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from graphgen.runtime.device_kit.runner.kit_types import FORMAT, KIT, MANIFEST, KitCase, Manifest


class KitError(Exception):
    """The kit cannot be used."""


def read_manifest(kit: Path) -> tuple[Manifest, str]:
    """The manifest and its SHA-256 (KitError)."""
    try:
        data = _read(kit, MANIFEST)
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
            found = hashlib.sha256(_read(kit, name)).hexdigest()
        except OSError as error:
            raise KitError(f"{name} is missing; unpack the kit again") from error
        if found != expected:
            raise KitError(f"{name} was changed; unpack the kit again")
    for target in content["targets"].values():
        for case in target["cases"]:
            data = [item["data"] for item in [*case["inputs"], *case["outputs"]]]
            for name in [case["hlo"], *data]:
                if name and name not in content["files"]:
                    what = f"{MANIFEST} has no hash of {name}, which {case['name']} reads"
                    raise KitError(f"{what}; unpack the kit again")


def _read(kit: Path, name: str) -> bytes:
    """A regular file of the kit, by its name in the manifest (KitError, OSError)."""
    # The runner goes without graphgen: the rule of its names is here, too.
    if not all(part not in ("", ".", "..") and "\0" not in part for part in name.split("/")):
        raise KitError(f"{name!r} in {MANIFEST} is not the name of a file of the kit")
    opened = os.open(kit / name, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise KitError(f"{name} is not a regular file; unpack the kit again")
        return file.read()


def chosen(cases: Sequence[KitCase], patterns: Sequence[str]) -> list[KitCase]:
    """The cases whose names match one of the patterns, or begin with one; all without patterns."""
    return [
        case
        for case in cases
        if not patterns or any(_matches(case["name"], pattern) for pattern in patterns)
    ]


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")
