"""One call of a program and its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.eval import Array
from graphgen.ir import Dim


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """One call of a program.

    Attributes:
        phase: of the program.
        dims: sizes of the symbols in this call.
        inputs: by name, in logical types.
        active: rows whose outputs matter, ``None`` for all.
        parts: inputs that differ by rank, in physical types: name -> one array per rank.
        note: what the call is made for, in words; empty where no script planned it.
    """

    phase: str
    dims: Mapping[str, Dim]
    inputs: Mapping[str, Array]
    active: tuple[int, ...] | None = None
    parts: Mapping[str, Sequence[Array]] = field(default_factory=dict[str, Sequence[Array]])
    note: str = ""


# Outputs and states after one call, by name, in logical types; a masked array where some elements
# of a state hold nothing that is defined.
Outcome = dict[str, Array]
