"""Files of the largest magnitudes that caches held over a text, which fixed scales come from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.whole_file import write_whole

# The largest magnitude of each channel, head by head: [K][D].
Magnitudes = Sequence[Sequence[float]]
# By the name of the state.
CacheRanges = Mapping[str, Magnitudes]
_FORMAT = 1


def write_ranges(path: Path, ranges: CacheRanges) -> None:
    """Write the file whole or not at all.

    Args:
        path: the file, JSON.
        ranges: of each state.
    """
    content = {
        "format": _FORMAT,
        "largest": {name: list(map(list, x)) for name, x in ranges.items()},
    }
    write_whole(path, json.dumps(content).encode())


def read_ranges(path: Path) -> CacheRanges:
    """Read a file of :func:`write_ranges`.

    Raises:
        GraphgenError: GG0705 for a file that cannot be read or is none of these.
    """
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise GraphgenError("GG0705", f"cannot read {path}: {what}", help=_HELP) from error
    if not isinstance(content, dict) or cast("dict[str, object]", content).get("format") != _FORMAT:
        raise _not_ranges(path, f'it has no "format": {_FORMAT}')
    found = cast("dict[str, object]", content).get("largest")
    if not isinstance(found, dict):
        raise _not_ranges(path, 'it has no "largest"')
    ranges = cast("dict[str, object]", found)
    for name, rows in ranges.items():
        if not _are_magnitudes(rows):
            raise _not_ranges(path, f'"{name}" is no table of numbers from 0 on')
    return cast("dict[str, Magnitudes]", ranges)


_HELP = "graphgen calibrate MODEL --text TEXT -o FILE writes one"


def _not_ranges(path: Path, why: str) -> GraphgenError:
    return GraphgenError("GG0705", f"{path} holds no ranges of caches: {why}", help=_HELP)


def _are_magnitudes(rows: object) -> bool:
    if not isinstance(rows, list) or not rows:
        return False
    table = [cast("list[object]", row) for row in cast("list[object]", rows) if _is_row(row)]
    return len(table) == len(cast("list[object]", rows)) and len(set(map(len, table))) == 1


def _is_row(row: object) -> bool:
    if not isinstance(row, list) or not row:
        return False
    return all(
        isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) and x >= 0
        for x in cast("list[object]", row)
    )
