"""A launch argument of pipeline stages, placed on a stage's devices at its first read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphgen.eval import Array


@dataclass(frozen=True, slots=True)
class StageArrays:
    """A tensor that a launch takes, before it is known which stages read it.

    A stage puts it on its devices when it first reads it; in a process that has none of them, it
    stays where it is.

    Attributes:
        arrays: of ranks of a stage; of those that this process has in the stages that read it.
        placed: by the number of a stage's first device, what it has put on its devices.
    """

    arrays: Mapping[int, Array]
    placed: dict[int, Any] = field(default_factory=dict[int, Any])
