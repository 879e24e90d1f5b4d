"""Read a thunk sequence: the steps that XLA runs for a program, a line each."""

from __future__ import annotations

import re
from dataclasses import dataclass

# ``000: kGemm	custom-call.1	..`` of GPUs, ``kKernel op: fusion.1``, or ``Kernel (fusion)``.
_LINE = re.compile(r"\s*(?:\d+:?\s+)?(k[A-Z]\w*)\b[\s:]*(?:op:?\s*)?%?([\w.\-]*)(.*)")


@dataclass(frozen=True, slots=True)
class Thunk:
    """One step: its kind such as ``kGemm``, the op that it runs, and the rest of its line."""

    kind: str
    name: str
    rest: str


def read_thunks(text: str) -> list[Thunk]:
    """The thunks of a text, in order; lines of another form are left out."""
    found = [_LINE.fullmatch(line) for line in text.splitlines()]
    return [Thunk(match[1], match[2], match[3].strip()) for match in found if match]
