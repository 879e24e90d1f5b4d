"""MLIR locations as locations of the IR: file, line, scope and passes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from graphgen.ir import Loc, loc
from graphgen.lowering.mlir.tokens import unquoted
from graphgen.numbers import whole_number

_STRING = r'"(?:[^"\\]|\\.)*"'
_PART = re.compile(
    rf"(?P<file>{_STRING}):(?P<line>\d+):\d+(?: to (?:\d+)?(?::\d+)?)?|(?P<name>{_STRING})"
    r"|(?P<alias>#[\w$.]+)|(?P<at>\bat\b)|(?P<callsite>callsite)"
)
_VIA = re.compile(r"(.*) via (\S+)$")


@dataclass(slots=True)
class MlirLocations:
    """Reader of locations by their text.

    Attributes:
        aliases: the text of ``#loc1`` by name.
        filename: of the MLIR text, for ops without a location.
        own_lines: lines of the text are lines of that file; not so after jaxlib has printed the
            text again.
    """

    aliases: Mapping[str, str]
    filename: str
    own_lines: bool = True
    _found: dict[str, tuple[str, str, int]] = field(default_factory=dict[str, tuple[str, str, int]])

    def read(self, text: str, line: int, call: Loc | None = None) -> Loc:
        """Read the location ``text`` of an op on ``line`` of the MLIR text.

        A name becomes the scope: ``jit(f)/layers/add`` is ``jit(f).layers.add``. Of a call stack
        the innermost place counts. An op in a called function takes missing parts from ``call``,
        and its scope is appended to that of ``call``. The last resort is the line of the MLIR
        text.
        """
        name, file, number = self._parts(text, 0)
        scope, via = _scope(name)
        if call is not None:
            scope = ".".join(part for part in (call.scope, scope) if part)
            if not file:
                file, number = call.file, call.line
        if file in ("", "-"):
            # MLIR's parser gives an op without a location one in a file called "-".
            number = number if file else line if self.own_lines else 0
            file = self.filename
        return loc(re.sub(r"\s", "_", file), number, scope, via)

    def name(self, text: str) -> str:
        """Return the name in ``loc("x")``; empty for a location with a file, or without a name."""
        name, file, _ = self._parts(text, 0)
        return "" if file else name

    def _parts(self, text: str, depth: int) -> tuple[str, str, int]:
        """Find name, file and line: the first of each, outermost first."""
        known = self._found.get(text)
        if known is not None or depth > 50:
            return known or ("", "", 0)
        name, file, line = "", "", 0
        for found in _PART.finditer(text):
            if found["at"] is not None:
                # callsite(callee at caller): the callee is the place of the op.
                break
            if found["file"] is not None:
                inner = ("", unquoted(found["file"]), _line(found["line"]))
            elif found["name"] is not None:
                inner = (unquoted(found["name"]), "", 0)
            elif found["alias"] is not None:
                inner = self._parts(self.aliases.get(found["alias"], ""), depth + 1)
            else:
                continue
            name = name or inner[0]
            if not file:
                file, line = inner[1], inner[2]
        self._found[text] = (name, file, line)
        return name, file, line


def _scope(name: str) -> tuple[str, tuple[str, ...]]:
    """Split an op_name into scope and passes: ``layers/0/attn via canonicalize,legalize``."""
    via: tuple[str, ...] = ()
    if found := _VIA.match(name):
        name, via = found[1], tuple(found[2].split(","))
    scope = re.sub(r"\s+", "_", name.strip("/")).replace("/", ".").rstrip(":")
    return ("" if scope in ("main", "unknown") else scope), via


def _line(text: str) -> int:
    """A line number; 0, for none, where it is larger than that of any file."""
    try:
        return whole_number(text)
    except ValueError:
        return 0
