"""Results of long runs as lines of JSON, kept so that a run goes on where it was stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from graphgen.atomic_write import write_whole

# Results are written after as many seconds of work, so that little is lost and little is written.
WRITE_EVERY_S = 10.0


def digest_of(root: Path, folders: Iterable[str]) -> str:
    """A digest of the Python sources in folders; results hold while it is the same."""
    found = sha256()
    for path in sorted(path for name in folders for path in (root / name).rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


class JsonLines:
    """A file of results, one a line, which is written whole.

    Args:
        path: the file; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = time.monotonic()

    def read(self) -> list[dict[str, object]]:
        """The results so far."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def write(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Replace the results."""
        text = "".join(json.dumps(dict(row)) + "\n" for row in rows)
        write_whole(self.path, text.encode(), parents=True)
        self._written = time.monotonic()

    def write_in_time(self, rows: Iterable[Mapping[str, object]], *, last: bool) -> bool:
        """Replace the results if that is due or ``last``; true if they were written."""
        due = last or time.monotonic() - self._written > WRITE_EVERY_S
        if due:
            self.write(rows)
        return due
