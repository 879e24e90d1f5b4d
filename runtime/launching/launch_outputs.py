"""The outputs of a session's launches on the host, and the choices that experts dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.ir import Module, Role
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.stage_links import on_host
from graphgen.runtime.launching.row_results import Outputs

# As ``limit-expert-capacity`` and the models call them; an artifact runs without either.
_CAPACITIES, _COUNTS = "expert_capacities", "expert_counts"
Results = Mapping[str, Sequence[DeviceValue]]


@dataclass(slots=True)
class DroppedChoices:
    """Choices of experts of the launches so far, those of padding included.

    Attributes:
        dropped: that experts had no place for.
        made: all of them.
    """

    dropped: int = 0
    made: int = 0

    def note(self, counts: npt.NDArray[np.generic], capacity: int) -> None:
        """Add the choices [L,E] of a launch with experts of a capacity; 0 is for all tokens."""
        numbers = counts.astype(np.int64)
        self.made += int(numbers.sum())
        if capacity:
            self.dropped += int(np.maximum(numbers - capacity, 0).sum())


class LaunchOutputs:
    """Reads outputs by name.

    Args:
        module: of the programs.

    Attributes:
        choices: of experts; ``None`` where none are dropped.
    """

    def __init__(self, module: Module) -> None:
        rows = [row.name for row in module.entries(Role.OUTPUT)]
        self._names = [name for name in rows if name != _COUNTS]
        self._capacities = cast("Mapping[str, int]", json.loads(module.meta.get(_CAPACITIES, "{}")))
        self.choices = DroppedChoices() if _COUNTS in rows and self._capacities else None

    def of(self, results: Results) -> dict[str, Sequence[DeviceValue]]:
        """The outputs among the results of a launch."""
        return {name: results[name] for name in (*self._names, _COUNTS) if name in results}

    def wait(self, results: Results) -> Outputs:
        """The outputs on the host, once the launch has ended; choices are not counted."""
        return {name: on_host(results[name][0]) for name in self._names if name in results}

    def read(self, program: str, results: Results) -> Outputs:
        """The same, with the choices counted."""
        outputs = self.wait(results)
        if self.choices is not None and _COUNTS in results:
            capacity = self._capacities.get(program, 0)
            self.choices.note(on_host(results[_COUNTS][0]), capacity)
        return outputs
