"""Results of single cases as they come, whole or not at all, and all of them as one JSON."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from graphgen.runtime.device_kit.runner.kit_types import (
    FORMAT,
    RESULTS,
    CaseResult,
    KitCase,
    Results,
    SdkFacts,
)


class ResultStore:
    """A folder of results under keys of what they depend on.

    Args:
        folder: it is made.
        key: of everything but the case: compiler, device.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, case: KitCase) -> CaseResult | None:
        """The result of a case that was kept; ``None`` if there is none."""
        try:
            found = json.loads(self._path(case).read_bytes())
        except (OSError, ValueError):
            return None
        return cast(CaseResult, found) if isinstance(found, dict) else None

    def keep(self, case: KitCase, result: CaseResult) -> None:
        """Keep the result of a case."""
        write_whole(self._path(case), json.dumps(result).encode())

    def _path(self, case: KitCase) -> Path:
        text = json.dumps([self._key, case], sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that takes the place of ``path`` when it is complete (OSError)."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    # A new file: not what a link of this name points to.
    with part.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def joined(
    kit: str,
    graphgen: str,
    target: str,
    lnc: int,
    facts: SdkFacts,
    results: Sequence[CaseResult],
    missing: int,
) -> Results:
    """The content of the results file."""
    return {
        "kind": RESULTS,
        "format": FORMAT,
        "kit": kit,
        "graphgen": graphgen,
        "target": target,
        "lnc": lnc,
        "facts": facts,
        "missing": missing,
        "cases": sorted(results, key=lambda item: item["name"]),
    }
