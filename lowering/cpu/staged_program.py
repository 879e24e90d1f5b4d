"""A program of a pipeline: a chain of compiled stages, each on devices of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.program import CpuProgram, DeviceValue


@dataclass(frozen=True, slots=True)
class StagedProgram:
    """One entry program in stages; stage k runs on the devices from k times the ranks on.

    Launches are asynchronous: while a stage of one runs, an earlier stage of the next one may.

    Attributes:
        name: the function's name.
        stages: compiled for their devices, in order.
        outputs: name of each output of the whole, in order.
        ranks: of each stage.
    """

    name: str
    stages: Sequence[CpuProgram]
    outputs: tuple[str, ...]
    ranks: int
    # What has been moved to a stage: the value, and the one that it was moved from.
    _moved: dict[tuple[int, str], tuple[DeviceValue, DeviceValue]] = field(
        default_factory=dict[tuple[int, str], tuple[DeviceValue, DeviceValue]]
    )

    def launch(self, values: Mapping[str, DeviceValue]) -> dict[str, list[DeviceValue]]:
        """Run on device values by name; donated states are gone afterwards.

        Returns:
            Per output, one array a rank of its stage.
        """
        made: dict[str, list[DeviceValue]] = {}
        for number, stage in enumerate(self.stages):
            with pjrt.on_devices_from(number * self.ranks):
                given = {
                    name: pjrt.moved(made[name], self.ranks)
                    if name in made
                    else self._here(number, name, values[name], kept=name not in stage.states)
                    for name, _ in stage.arguments
                }
                made |= stage.launch(given)
        return {name: made[name] for name in self.outputs}

    def _here(self, number: int, name: str, value: DeviceValue, *, kept: bool) -> DeviceValue:
        """An argument on the devices of a stage; moved once where it stays the same."""
        known = self._moved.get((number, name))
        if known is not None and known[1] is value:
            return known[0]
        found = pjrt.moved(value, self.ranks)
        if kept and found is not value:
            self._moved[number, name] = found, value
        return found
