"""Bounds of the stages of a pipeline of nodes, from programs of stages of a short model.

``pipeline-stages`` divides a program between layers. The deep model is divided where that pass
would do it, by the costs of the short model's places, of which those of a period repeat. For each
stage the programs of as many layers less whole periods are cut from the short model's, and what a
period costs is added for each that is left out. Values at the worst moment may differ a little:
what several layers share is made in the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from graphgen.analysis.calls import inlined
from graphgen.analysis.liveness import peak_memory
from graphgen.analysis.stages.layer_cuts import ProgramCuts, cut_program, layer_scopes
from graphgen.analysis.stages.stage_chain import edge_name, part_of, stage_outputs
from graphgen.errors import GraphgenError
from graphgen.ir import Function
from graphgen.lowering.plan.ladders.bucket_seconds import ProgramBound
from graphgen.lowering.plan.short_bounds import (
    HELD_BYTES,
    LayerCost,
    LayerCosts,
    ShortModel,
    layer_bytes,
    layer_costs,
)
from graphgen.passes.stages.stage_cost import balanced_cuts, program_costs, shared_costs
from graphgen.targets import Accelerator, find_target


@dataclass(frozen=True, slots=True)
class StageBound:
    """A stage.

    Attributes:
        first, last: its layers.
        programs: bounds by phase, with the bytes of a core that has all of them.
        edges: bytes that a rank hands to the next stage, by phase; 0 of the last one.
    """

    first: int
    last: int
    programs: Mapping[str, ProgramBound]
    edges: Mapping[str, int]


def stage_bounds(
    short: ShortModel, device: Accelerator, layers: int, stages: int
) -> list[StageBound]:
    """The stages of a model, each of the ranks that ``short`` is compiled for.

    Args:
        short: stands for the model, with one program a phase.
        device: what it is compiled for.
        layers: of the model.
        stages: how many, at least two.

    Raises:
        GraphgenError: GG0302 for more stages than places to cut at, and for programs that cannot
            be cut between all layers.
    """
    return _Stages(short, device, layers).bounds(stages)


@dataclass(slots=True)
class _Stages:
    """A short model cut between its layers, and the deep one that it stands for."""

    short: ShortModel
    device: Accelerator
    layers: int
    programs: Sequence[ProgramCuts] = ()
    periods: Mapping[str, LayerCost] = field(default_factory=dict[str, LayerCost])
    period_bytes: int = 0
    parts: dict[tuple[int, int], StageBound] = field(
        default_factory=dict[tuple[int, int], StageBound]
    )

    def __post_init__(self) -> None:
        module, numbers = self.short.module, self.short.repeated
        flat = [inlined(module, function) for function in module.programs()]
        scopes = layer_scopes(flat[0])
        self.programs = [cut_program(module, function, scopes) for function in flat]
        if self.short.more:
            costs = {f.phase: layer_costs(module, f, self.device) for f in module.programs()}
            self.periods = {phase: _total(made, numbers) for phase, made in costs.items()}
            self.period_bytes = layer_bytes(module, numbers)

    def bounds(self, stages: int) -> list[StageBound]:
        count, deep = self.short.layers + 2, self.layers + 2
        places = [self._place(place) for place in range(deep)]
        target = find_target(self.device.name)
        shorts = [program_costs(program, count, target) for program in self.programs]
        costs = shared_costs([[each[place] for place in places] for each in shorts])
        common = {cut for cut in self.programs[0].cuts if all(cut in p.cuts for p in self.programs)}
        if not common.issuperset(range(1, self.short.layers)):
            raise GraphgenError(
                "GG0302",
                "the programs cannot be cut between all layers",
                help="a pass computed values of several layers together",
            )
        cuts = [place for place in range(deep) if places[place] in common]
        ends = balanced_cuts(costs, cuts, stages)
        return [self._stage(begin, end) for begin, end in pairwise([-1, *ends, deep - 1])]

    def _place(self, place: int) -> int:
        """The short model's place that a place of the deep one is like."""
        known, beyond = self.short.layers, self.layers - self.short.layers
        if place < known:
            return place
        if place > self.layers - 1:
            return place - beyond
        return self.short.repeated[(place - known) % self.short.period] + 1

    def _stage(self, begin: int, end: int) -> StageBound:
        """The stage of the places after ``begin``, up to ``end``."""
        first, last, left_out = self._short_places(begin, end)
        part = self.parts.get((first, last))
        if part is None:
            part = self.parts[first, last] = self._part(first, last)
        more = left_out // (self.short.period or 1)
        programs = {
            phase: ProgramBound(
                bound.seconds + more * self.periods[phase].seconds,
                bound.link_bytes + more * self.periods[phase].link_bytes,
                bound.core_bytes + more * self.period_bytes,
            )
            if more
            else bound
            for phase, bound in part.programs.items()
        }
        return StageBound(max(begin, 0), min(end, self.layers) - 1, programs, part.edges)

    def _short_places(self, begin: int, end: int) -> tuple[int, int, int]:
        """The same of the short model, and the layers that it has less there."""
        known, period = self.short.layers, self.short.period
        beyond = self.layers - known
        if not beyond:
            return begin, end, 0
        # Layers that repeat begin after this place.
        start = known - (3 if period == 1 else 2 * period)
        if end > self.layers:
            few = end - begin - 1 - (known - start)
            left_out = beyond if begin < start else _periods(few, period)
            return begin - beyond + left_out, end - beyond, left_out
        first = begin if begin < start else start + (begin - start) % period
        last = first + end - begin
        left_out = _periods(last - (known - 1), period)
        return first, last - left_out, left_out

    def _part(self, first: int, last: int) -> StageBound:
        module, final = self.short.module, self.short.layers + 1
        parts: dict[str, Function] = {}
        edges: dict[str, int] = {}
        for program, whole in zip(self.programs, module.programs(), strict=True):
            outputs = stage_outputs(program, 1, first, last)
            part = part_of(
                program.function, whole.name, outputs, program.cuts.get(first), edge_name(0)
            )
            parts[whole.phase] = part
            edge = dict(outputs).get(edge_name(1)) if last < final else None
            edges[whole.phase] = 0 if edge is None else edge.type.nbytes
        held = self._held(list(parts.values()))
        costs = {phase: layer_costs(module, part, self.device) for phase, part in parts.items()}
        programs = {
            phase: ProgramBound(cost.seconds, cost.link_bytes, held)
            for phase, cost in costs.items()
        }
        return StageBound(0, 0, programs, edges)

    def _held(self, parts: Sequence[Function]) -> int:
        """Bytes of a core: all that the programs read, and values at the worst moment."""
        module = self.short.module
        names = {value.name or "" for part in parts for value in part.args}
        rows = [module.interface[name] for name in names if name in module.interface]
        held = sum(row.physical.nbytes for row in rows if row.role in HELD_BYTES)
        return held + max(peak_memory(module, part).bytes for part in parts)


def _periods(layers: int, period: int) -> int:
    """Layers of the fewest whole periods that have at least ``layers``."""
    return max(0, -(-layers // period)) * period


def _total(costs: LayerCosts, numbers: range) -> LayerCost:
    layers = [costs.layers[number] for number in numbers]
    return LayerCost(sum(each.seconds for each in layers), sum(each.link_bytes for each in layers))
