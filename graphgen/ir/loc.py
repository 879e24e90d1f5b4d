"""Source locations: the user's line, the module scope, and the passes that made it."""

from __future__ import annotations

import sys
from collections.abc import Callable


class Loc:
    """One provenance record, interned by :func:`loc`.

    Attributes:
        file: source file, relative to the import root (never a machine's absolute path for ours).
        line: 1-based line, 0 when unknown.
        scope: dotted module scope such as ``model.layers.17.self_attn``.
        via: the passes that created or rewrote the op, oldest first.
    """

    __slots__ = ("file", "line", "scope", "via")

    def __init__(self, file: str, line: int, scope: str, via: tuple[str, ...]) -> None:
        self.file = file
        self.line = line
        self.scope = scope
        self.via = via

    def __repr__(self) -> str:
        via = f" via {','.join(self.via)}" if self.via else ""
        return f"{self.file}:{self.line}{' ' + self.scope if self.scope else ''}{via}"

    def __reduce__(self) -> tuple[Callable[..., Loc], tuple[str, int, str, tuple[str, ...]]]:
        return loc, (self.file, self.line, self.scope, self.via)

    def through(self, pass_name: str) -> Loc:
        """The same place, after ``pass_name`` has had its hands on it (named once)."""
        if not pass_name or pass_name in self.via:
            return self
        return loc(self.file, self.line, self.scope, (*self.via, pass_name))


_interned: dict[tuple[str, int, str, tuple[str, ...]], Loc] = {}
_vias: dict[tuple[str, ...], tuple[str, ...]] = {}


def loc(file: str = "", line: int = 0, scope: str = "", via: tuple[str, ...] = ()) -> Loc:
    """The interned :class:`Loc` of these fields."""
    key = (file, line, scope, via)
    found = _interned.get(key)
    if found is None:
        # Interned: thousands of locations share few files and pass lists.
        file, scope = sys.intern(file), sys.intern(scope)
        via = _vias.setdefault(via, via)
        found = _interned[file, line, scope, via] = Loc(file, line, scope, via)
    return found


UNKNOWN = loc("?")
