"""A model on one node and on more: memory of a core, and bounds of its programs, by layout.

Three layouts share the ranks of several nodes:

* ``tp``: one mesh axis over all ranks. Ranks fill node after node, so that sums cross the network.
* ``pp``: each node has the layers of a stage and its own tensor parallelism. Each rank hands a
  hidden state to the same rank of the next node; as many requests as stages are in flight.
* ``dp``: each node has the whole model and answers requests of its own.

Times are rooflines, bounds from below (:mod:`graphgen.lowering.cost.roofline`), in which a sum over
nodes takes the least that any stages of it do. Beside it stand the times with each sum as one ring
or mesh of all ranks, and with the stages of ``hierarchical-collectives``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

from graphgen.analysis.calls import inlined
from graphgen.analysis.collective_traffic import level_between
from graphgen.analysis.layer_cuts import ProgramCuts, cut_program, layer_scopes
from graphgen.analysis.liveness import peak_memory
from graphgen.analysis.stage_chain import edge_name, part_of, stage_outputs
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Function
from graphgen.json_value import Json
from graphgen.lowering.plan.bucket_seconds import ProgramBound
from graphgen.lowering.plan.measure import layer_period
from graphgen.lowering.plan.short_bounds import (
    HELD_BYTES,
    LayerCost,
    LayerCosts,
    ShortModel,
    layer_bytes,
    layer_costs,
    model_bounds,
    short_model,
)
from graphgen.models.first_layers import stated_layers
from graphgen.models.registry import family_of
from graphgen.passes.core import run_pipeline
from graphgen.passes.sharding.pipeline_stages import balanced_cuts, program_costs, shared_costs
from graphgen.passes.spmd.hierarchical_collectives import HierarchicalCollectives
from graphgen.targets import Accelerator, find_target, over_nodes


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


_PHASES = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class FlatBounds:
    """Bounds of an engine that makes no stages of a collective.

    Attributes:
        prefill_s, step_s, node_bytes: as of :class:`NodeLayout`.
    """

    prefill_s: float
    step_s: float
    node_bytes: int


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """A model over some nodes in one layout.

    Attributes:
        nodes: how many.
        layout: ``tp 128``, ``pp 2 x tp 64`` or ``dp 2 x tp 64``.
        core_bytes: of a core, with code; 0 where the model cannot be laid out like that.
        prefill_s, step_s: of one request's prompt of the longest bucket, and of one of its tokens.
        tokens_per_second: of all requests together.
        link_bytes: that a chip sends to others of its node in a decode step.
        node_bytes: that a node sends to others in a decode step.
        why_not: why it does not serve; empty where it does.
        flat: where each collective is one ring or mesh of all its ranks; only of a mesh over nodes.
        staged: the same of the programs with ``nodes``, where collectives are made in stages.
    """

    nodes: int
    layout: str
    core_bytes: int = 0
    prefill_s: float = 0.0
    step_s: float = 0.0
    tokens_per_second: float = 0.0
    link_bytes: int = 0
    node_bytes: int = 0
    why_not: str = ""
    flat: FlatBounds | None = None
    staged: FlatBounds | None = None

    def to_json(self) -> dict[str, Json]:
        """The attributes by name."""
        return {**asdict(self), "why_not": self.why_not or None}


def node_plan(
    config: Mapping[str, object],
    device: Accelerator,
    demand: CompileConfig,
    nodes: int,
    instance: str = "",
) -> list[NodeLayout]:
    """The layouts on 1, 2, 4, ... nodes, up to ``nodes``, which is the last.

    Args:
        config: a ``config.json``; Hugging Face's names.
        device: the accelerator.
        demand: the configuration to compile for; ``tp`` is the ranks of a node, 1 for all of them.
        nodes: the most.
        instance: the type of each node; empty for the usual one.

    Raises:
        GraphgenError: GG0302 for an instance without figures of a network, or a configuration that
            is not supported.
    """
    ranks = demand.tp if demand.tp > 1 else over_nodes(device, 2, instance).node_ranks
    period = layer_period(config)
    alone = _compiled(config, device, replace(demand, tp=ranks), period)
    counts = [*[1 << n for n in range(nodes.bit_length()) if 1 << n < nodes], nodes]
    found: list[NodeLayout] = []
    for count in counts:
        where = over_nodes(device, count, instance, count * ranks)
        tp = replace(demand, tp=count * ranks)
        made = alone if count == 1 else _compiled(config, where, tp, period)
        row = _row(where, count, f"tp {count * ranks}", made, demand)
        if count > 1 and isinstance(made, ShortModel):
            row = _with_flat(row, where, made, count, instance)
        found.append(row)
        if count > 1:
            found.extend(_of_nodes(config, where, alone, demand, count, ranks))
    return found


def _compiled(
    config: Mapping[str, object], device: Accelerator, demand: CompileConfig, period: int
) -> ShortModel | GraphgenError:
    """The programs, or why the model cannot be laid out like that."""
    try:
        return short_model(config, device, demand, _PHASES, period)
    except GraphgenError as error:
        if error.code != "GG0304":
            raise
        return error


def _longest(short: ShortModel, device: Accelerator) -> tuple[ProgramBound, ProgramBound]:
    """The bounds of the longest prompt, and of a decode step."""
    bounds = model_bounds(short, device)
    longest = {phase: max(c for p, c in bounds if p == phase) for phase in _PHASES}
    prefill, decode = (bounds[phase, longest[phase]] for phase in _PHASES)
    return prefill, decode


def _row(
    device: Accelerator,
    nodes: int,
    layout: str,
    made: ShortModel | GraphgenError,
    demand: CompileConfig,
) -> NodeLayout:
    """A mesh of one axis."""
    if isinstance(made, GraphgenError):
        return NodeLayout(nodes, layout, why_not=made.what)
    prefill, decode = _longest(made, device)
    held = decode.core_bytes + device.code_bytes
    return NodeLayout(
        nodes,
        layout,
        held,
        prefill.seconds,
        decode.seconds,
        demand.cache_rows / decode.seconds,
        decode.link_bytes,
        decode.node_bytes,
        _too_much(held, device),
    )


def _with_flat(
    row: NodeLayout, device: Accelerator, made: ShortModel, nodes: int, instance: str
) -> NodeLayout:
    """The row with the bounds of flat collectives; those of ``made`` are then in stages."""
    flat = replace(device, flat_collectives=True)
    whole = _flat_bounds(made, flat)
    run_pipeline(made.module, [HierarchicalCollectives(nodes, device.name, instance)])
    return replace(row, flat=whole, staged=_flat_bounds(made, flat))


def _flat_bounds(made: ShortModel, device: Accelerator) -> FlatBounds:
    prefill, decode = _longest(made, device)
    return FlatBounds(prefill.seconds, decode.seconds, decode.node_bytes)


def _of_nodes(
    config: Mapping[str, object],
    device: Accelerator,
    alone: ShortModel | GraphgenError,
    demand: CompileConfig,
    nodes: int,
    ranks: int,
) -> Iterator[NodeLayout]:
    """The layouts with a mesh in each node: stages, and whole models."""
    names = [f"{kind} {nodes} x tp {ranks}" for kind in ("pp", "dp")]
    if isinstance(alone, GraphgenError):
        for name in names:
            yield NodeLayout(nodes, name, why_not=alone.what)
        return
    _, layers = stated_layers(family_of(config), config)
    try:
        stages = stage_bounds(alone, device, layers or 0, nodes)
    except GraphgenError as error:
        if error.code != "GG0302":
            raise
        yield NodeLayout(nodes, names[0], why_not=error.what)
    else:
        yield _of_stages(device, names[0], stages, demand, ranks)
    whole = _row(device, nodes, names[1], alone, demand)
    yield replace(whole, tokens_per_second=nodes * whole.tokens_per_second)


def _of_stages(
    device: Accelerator,
    layout: str,
    stages: Sequence[StageBound],
    demand: CompileConfig,
    ranks: int,
) -> NodeLayout:
    """A stage a node, between which each rank hands on what its program gives."""
    taken = {phase: [stage.programs[phase].seconds for stage in stages] for phase in _PHASES}
    for phase in _PHASES:
        for number, stage in enumerate(stages[:-1]):
            sent = ranks * stage.edges[phase]
            taken[phase].append(_send_seconds(device, number * ranks, ranks, sent))
    prefill, step = (sum(taken[phase]) for phase in _PHASES)
    held = max(stage.programs["decode"].core_bytes for stage in stages) + device.code_bytes
    # Requests in flight are as many as stages, and the slowest stage, or link, has each in turn.
    slowest = max(max(taken["decode"]), step / len(stages))
    return NodeLayout(
        len(stages),
        layout,
        held,
        prefill,
        step,
        demand.cache_rows / slowest,
        max(stage.programs["decode"].link_bytes for stage in stages),
        ranks * max(stage.edges["decode"] for stage in stages),
        _too_much(held, device),
    )


def _send_seconds(device: Accelerator, first: int, ranks: int, sent: int) -> float:
    """Seconds in which a node, whose ranks begin at ``first``, sends bytes to the next one."""
    place = level_between(first, first + ranks, device.levels)
    assert place is not None, f"rank {first + ranks} is on the node of rank {first}"
    level = device.levels[place]
    return level.hop_seconds + sent / (level.bandwidth * ranks / level.part)


def _too_much(held: int, device: Accelerator) -> str:
    if held <= device.hbm_bytes:
        return ""
    return f"needs {held / 1e9:.1f} GB of {device.hbm_bytes / 1e9:.1f} GB a core"
