"""Files of the largest magnitudes of caches and of inputs of products over a text.

Fixed scales come from them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from graphgen.atomic_write import read_regular, write_whole
from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.limits import JSON_BYTES

# The largest magnitude of each channel, head by head: [K][D].
Magnitudes = Sequence[Sequence[float]]
# By the name of the state.
CacheRanges = Mapping[str, Magnitudes]
# The largest magnitude of what a weight is multiplied by, by the name of the weight.
InputRanges = Mapping[str, float]
_NO_INPUTS: InputRanges = {}
_FORMAT = 1


def write_ranges(path: Path, ranges: CacheRanges, inputs: InputRanges = _NO_INPUTS) -> None:
    """Write the file whole or not at all.

    Args:
        path: the file, JSON.
        ranges: of each state.
        inputs: of each weight of a product.
    """
    content = {
        "format": _FORMAT,
        "largest": {name: list(map(list, x)) for name, x in ranges.items()},
        "inputs": dict(inputs),
    }
    write_whole(path, json.dumps(content).encode())


def read_ranges(path: Path) -> CacheRanges:
    """Read the ranges of caches of a file of :func:`write_ranges`.

    Raises:
        GraphgenError: GG0705 for a file that cannot be read or is none of these.
    """
    ranges = _section(path, "largest")
    for name, rows in ranges.items():
        if not _are_magnitudes(rows):
            raise _not_ranges(path, f'"{name}" is not a table of numbers >= 0')
    return cast("dict[str, Magnitudes]", ranges)


def read_input_ranges(path: Path) -> InputRanges:
    """Read the ranges of inputs of products of a file of :func:`write_ranges`.

    Raises:
        GraphgenError: GG0705 for a file that cannot be read or is none of these, also one that
            has ranges of caches alone.
    """
    ranges = _section(path, "inputs")
    for name, largest in ranges.items():
        if not _is_row([largest]):
            raise _not_ranges(path, f'"{name}" is not a number >= 0')
    return cast("dict[str, float]", ranges)


def _section(path: Path, name: str) -> dict[str, object]:
    """One of the tables of a file."""
    try:
        content: object = parse_json(read_regular(path, JSON_BYTES))
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise GraphgenError("GG0705", f"cannot read {path}: {what}", help=_HELP) from error
    if not isinstance(content, dict) or cast("dict[str, object]", content).get("format") != _FORMAT:
        raise _not_ranges(path, f'it has no "format": {_FORMAT}')
    found = cast("dict[str, object]", content).get(name)
    if not isinstance(found, dict):
        raise _not_ranges(path, f'it has no "{name}"')
    return cast("dict[str, object]", found)


_HELP = "graphgen calibrate MODEL --text TEXT -o FILE writes one"


def _not_ranges(path: Path, why: str) -> GraphgenError:
    return GraphgenError("GG0705", f"{path} holds no ranges: {why}", help=_HELP)


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
