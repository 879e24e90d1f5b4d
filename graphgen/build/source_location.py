"""Find the user's source line: the nearest stack frame outside of the graph-building code."""

from __future__ import annotations

import sys
from pathlib import Path

from graphgen.ir import Loc, loc

_ROOT = Path(__file__).resolve().parents[2]
_BUILDING = (
    "graphgen/build/",
    "graphgen/composites/",
    "graphgen/ir/",
    "graphgen/lowering/pyhlo/",
    "lowering/pyhlo/",
)
_short: dict[str, tuple[str, bool]] = {}
_locs: dict[tuple[str, int, str], Loc] = {}


def _describe(filename: str) -> tuple[str, bool]:
    """(name to print, True if it is graph-building code) of a source file."""
    path = Path(filename)
    try:
        name = path.resolve().relative_to(_ROOT).as_posix()
    except (ValueError, OSError):
        return path.name or filename, False
    return name, name.startswith(_BUILDING)


def source_name(filename: str) -> str:
    """The name of a Python file: ours relative to the repository, any other without its folder."""
    known = _short.get(filename)
    if known is None:
        known = _short[filename] = _describe(filename)
    return known[0]


def user_loc(scope: str) -> Loc:
    """The location of the user's code that is building the current op.

    It runs for every op; ``sys._getframe`` is about a hundred times cheaper than ``traceback`` or
    ``inspect``.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while True:
        filename = frame.f_code.co_filename
        known = _short.get(filename)
        if known is None:
            known = _short[filename] = _describe(filename)
        if not known[1] or frame.f_back is None:
            break
        frame = frame.f_back
    key = (known[0].replace(" ", "_"), frame.f_lineno, scope)
    found = _locs.get(key)
    if found is None:
        found = _locs[key] = loc(*key)
    return found
