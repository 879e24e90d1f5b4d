"""A program of a pipeline: a chain of compiled stages, each on devices of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.ir import TensorType
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.program import CpuProgram, DeviceValue
from graphgen.lowering.cpu.stage_arrays import StageArrays
from graphgen.lowering.cpu.stage_links import StageLinks, StageOutput


@dataclass(frozen=True, slots=True)
class StageParts:
    """Tensors that the stages of a program hand on and give, in every process.

    Attributes:
        edges: for each stage but the last, name and type of what the next one takes of it.
        outputs: stage and type of each output of the program, states left out.
    """

    edges: Sequence[tuple[str, TensorType] | None]
    outputs: Mapping[str, tuple[int, TensorType]]


@dataclass(frozen=True, slots=True)
class StagedProgram:
    """One entry program in stages; stage k runs on the devices from k times the ranks on.

    Launches are asynchronous: while a stage of one runs, an earlier stage of the next one may.

    Attributes:
        name: the function's name.
        stages: compiled for their devices, in order; ``None`` for those of other processes.
        outputs: name of each output of the whole, in order.
        ranks: of each stage.
        parts: what goes from stage to stage; needed with links.
        links: to stages of other processes; ``None`` in one process.
    """

    name: str
    stages: Sequence[CpuProgram | None]
    outputs: tuple[str, ...]
    ranks: int
    parts: StageParts = field(default_factory=lambda: StageParts((), {}))
    links: StageLinks | None = None
    # Values moved to a stage, each with the value it was moved from.
    _moved: dict[tuple[int, str], tuple[DeviceValue, DeviceValue]] = field(
        default_factory=dict[tuple[int, str], tuple[DeviceValue, DeviceValue]]
    )

    def __post_init__(self) -> None:
        """Connect the processes that the program's stages are in."""
        if self.links is not None:
            for number, edge in enumerate(self.parts.edges):
                if edge is not None:
                    self.links.announce_edge(number, edge[1])
            for stage, type_ in self.parts.outputs.values():
                self.links.announce_output(stage, type_)

    def launch(self, values: Mapping[str, DeviceValue]) -> dict[str, list[DeviceValue]]:
        """Run on device values by name; donated states are gone afterwards.

        Returns:
            Per output, one array a rank of its stage; over several processes those of the ranks
            that are here for a state, and a :class:`StageOutput` for any other output.
        """
        made: dict[str, list[DeviceValue]] = {}
        for number, stage in enumerate(self.stages):
            if stage is not None:
                with pjrt.on_devices_from(number * self.ranks):
                    given = {
                        name: pjrt.moved(made[name], self.ranks)
                        if name in made
                        else self._here(number, name, values[name], kept=name not in stage.states)
                        for name, _ in stage.arguments
                    }
                    made |= stage.launch(given)
            self._send(number, made)
        if self.links is None:
            return {name: made[name] for name in self.outputs}
        return {name: self._given(name, made.get(name, []), self.links) for name in self.outputs}

    def _send(self, number: int, made: dict[str, list[DeviceValue]]) -> None:
        """Start to send what a stage hands on, if this process has a part in it."""
        edge = self.parts.edges[number] if number < len(self.parts.edges) else None
        if edge is not None and self.links is not None and self.links.is_away(number):
            name, type_ = edge
            made[name] = self.links.send(number, type_, made.get(name, []))

    def _given(self, name: str, found: list[DeviceValue], links: StageLinks) -> list[DeviceValue]:
        if name not in self.parts.outputs:
            return found
        stage, type_ = self.parts.outputs[name]
        return [StageOutput(links, stage, type_, found[0] if found else None)]

    def _here(self, number: int, name: str, value: DeviceValue, *, kept: bool) -> DeviceValue:
        """An argument on the devices of a stage; moved once where it stays the same."""
        if isinstance(value, StageArrays):
            return pjrt.moved(value, self.ranks)
        known = self._moved.get((number, name))
        if known is not None and known[1] is value:
            return known[0]
        found = pjrt.moved(value, self.ranks)
        if kept and found is not value:
            self._moved[number, name] = found, value
        return found
