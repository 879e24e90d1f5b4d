"""The Python listings of a reStructuredText document."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LITERAL = re.compile(r"^\s*(\.\. code-block:: python|(?!\s*\.\. ).*::)\s*$")
# An import of one of the two packages, on one line or in parentheses.
_IMPORT = re.compile(
    r"^from (neuronx_distributed_inference|transformers_neuronx)[\w.]* import (\([^)]*\)|.*)$",
    re.MULTILINE,
)
_HOMES = {
    "neuronx_distributed_inference": "graphgen.runtime.aws.nxdi",
    "transformers_neuronx": "graphgen.runtime.aws.tnx",
}


@dataclass(frozen=True)
class Listing:
    """A block of code.

    Attributes:
        place: file and line.
        text: the code, not indented.
    """

    place: str
    text: str

    @property
    def ours(self) -> str:
        """The code with imports of graphgen instead, and without asterisks of bold text."""
        text = _IMPORT.sub(lambda m: f"from {_HOMES[m[1]]} import {m[2]}", self.text)
        return text.replace(" **=** ", " = ").replace("**=**", "=")


def listings(path: Path) -> Iterator[Listing]:
    """Every block that parses as Python and is more than a name."""
    lines = path.read_text().splitlines()
    at = 0
    while at < len(lines):
        head = lines[at]
        at += 1
        if not _LITERAL.match(head):
            continue
        start, indent = at, _indent(head)
        while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > indent):
            at += 1
        found = Listing(f"{path.name}:{start}", textwrap.dedent("\n".join(lines[start:at])).strip())
        if _is_python(found.ours):
            yield found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_python(text: str) -> bool:
    if "=" not in text and "(" not in text:
        return False
    try:
        compile(text, "listing", "exec")
    except SyntaxError:
        return False
    return True
