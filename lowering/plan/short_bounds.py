"""Bounds of a deep model's programs, from one short model compiled for a mesh.

:func:`graphgen.lowering.plan.bucket_seconds.program_bounds` compares two short models, and
what the deeper one takes more is a period of layers. Here a period is read off the layers of one:
those that are neither the first nor the last, whose neighbors are as in the middle of a deep model.
That takes less than half of the time, and :mod:`graphgen.lowering.plan.mesh_search` compiles many
meshes.

A target without rates, the CPU, has costs instead of seconds: those that ``partition`` minimizes,
in bytes that a rank sends (:func:`graphgen.lowering.plan.short_bounds.sent_cost`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.analysis.calls import inlined
from graphgen.analysis.layers import layers_of
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Function, Module, Op, Role
from graphgen.lowering.cost.roofline import roofline
from graphgen.lowering.plan.bucket_seconds import ProgramBound, ProgramBounds
from graphgen.lowering.plan.measure import core_bytes, few_layers, logical_module
from graphgen.models.first_layers import stated_layers
from graphgen.models.registry import family_of
from graphgen.ops import OPS
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.programs.specialize import Specialize
from graphgen.passes.sharding.collective_cost import sent
from graphgen.passes.sharding.strategies import op_work
from graphgen.passes.spmd.merge_collectives import MergeCollectives
from graphgen.passes.spmd.partition import Partition
from graphgen.passes.weights.derived import PreparedValues
from graphgen.targets import Accelerator


def partitioned_only(passes: Sequence[Pass]) -> Sequence[Pass]:
    """The passes up to the programs of a rank whose collectives are merged, or of a lone rank."""
    names = [item.name for item in passes]
    last = MergeCollectives.name if MergeCollectives.name in names else Specialize.name
    return passes[: names.index(last) + 1]


def sent_cost(module: Module, function: Function, ops: Iterable[Op]) -> int:
    """The cost of some ops of a rank's program, without dead ops."""
    prepared, live, found = PreparedValues(module, function, {}), _live(function), 0
    for op in ops:
        if op in live and not prepared.of_weights(op.results[0]):
            collective = OPS[op.name].collective
            found += sent(op) // module.ranks + collective * Partition.latency
            found += op_work(op) // Partition.memory
    return found


def _live(function: Function) -> set[Op]:
    """Ops whose results something reads that is returned."""
    live: set[Op] = set()
    for op in reversed(function.block):
        users = [user for value in op.results for user in value.users]
        if not live.isdisjoint(users) or any(map(function.returns, op.results)):
            live.add(op)
    return live


HELD_BYTES = (Role.PARAM, Role.WEIGHT, Role.STATE, Role.SLOTTED)


@dataclass(frozen=True, slots=True)
class ShortModel:
    """The compiled programs of a short model that stands for a deeper one.

    Attributes:
        module: of a rank.
        layers: of the short model; 0 where its family does not state them.
        period: the layers that repeat.
        more: periods that the deeper one has beyond these; 0 where it is the model itself.
    """

    module: Module
    layers: int
    period: int
    more: int

    @property
    def repeated(self) -> range:
        """The layers of a period in the middle; none of a model without layers."""
        last = self.layers - 1
        return range(last - self.period, last) if self.layers else range(0)


def short_bounds(
    config: Mapping[str, object],
    device: Accelerator | None,
    demand: CompileConfig,
    phases: tuple[str, ...],
    period: int,
) -> ProgramBounds:
    """Bounds of a call of each program, which are compiled together.

    Args:
        config: a ``config.json``; Hugging Face's names.
        device: the accelerator; ``None`` for costs in the place of seconds.
        demand: the buckets and batch sizes, and the ranks.
        phases: the programs.
        period: what :func:`graphgen.lowering.plan.measure.layer_period` says of ``config``.

    Raises:
        GraphgenError: GG0304 where the model cannot be split over the ranks.
    """
    return model_bounds(short_model(config, device, demand, phases, period), device)


def short_model(
    config: Mapping[str, object],
    device: Accelerator | None,
    demand: CompileConfig,
    phases: tuple[str, ...],
    period: int,
) -> ShortModel:
    """Compile the short model; arguments as for :func:`short_bounds`, of which it raises the same.

    For no device only what ``partition`` makes.
    """
    short = few_layers(config, period)
    model, more = (config, 0) if short is None else (short.few, short.more + 1)
    if device is not None:
        demand = replace(demand, target=device.name)
    module = logical_module(model, demand, phases)
    passes = default(demand)
    run_pipeline(module, passes if device is not None else partitioned_only(passes))
    _, count = stated_layers(family_of(model), model)
    return ShortModel(module, count or 0, period, more)


def model_bounds(short: ShortModel, device: Accelerator | None) -> ProgramBounds:
    """Bounds of the deep model's programs.

    Args:
        short: the model that stands for it.
        device: what :func:`short_model` compiled for, over any nodes.
    """
    module, more = short.module, short.more
    held = 0
    if device is not None:
        held = core_bytes(module) + more * layer_bytes(module, short.repeated)
    found: dict[tuple[str, int], ProgramBound] = {}
    for function in module.programs():
        bucket = function.dims["C"]
        assert isinstance(bucket, int), bucket
        costs = layer_costs(module, function, device)
        count = len(costs.layers)
        assert not more or count == short.layers, f"{count} layers of {short.layers}"
        repeated = [costs.layers[number] for number in short.repeated] if more else []
        found[function.phase, bucket] = ProgramBound(
            costs.seconds + more * sum(layer.seconds for layer in repeated),
            costs.link_bytes + more * sum(layer.link_bytes for layer in repeated),
            held,
            costs.node_bytes + more * sum(layer.node_bytes for layer in repeated),
        )
    return found


@dataclass(frozen=True, slots=True)
class LayerCost:
    """Seconds, or what stands for them, and bytes over links, of a layer."""

    seconds: float
    link_bytes: int = 0
    node_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LayerCosts(LayerCost):
    """The same of a program, and of each of its layers."""

    layers: Sequence[LayerCost] = ()


def layer_costs(module: Module, function: Function, device: Accelerator | None) -> LayerCosts:
    """The costs of a program and of its layers; of no device those of ``partition``."""
    if device is None:
        by_layer = layers_of(function)
        layers = [LayerCost(sent_cost(module, function, ops)) for ops in by_layer.values()]
        return LayerCosts(sent_cost(module, function, list(function.block)), layers=layers)
    line = roofline(module, function, device)
    layers = [
        LayerCost(group.each.seconds, group.each.link_bytes, group.each.node_bytes)
        for group in line.groups
        if group.first
        for _ in range(group.count)
    ]
    return LayerCosts(line.seconds, line.total.link_bytes, line.total.node_bytes, layers)


def layer_bytes(module: Module, numbers: range) -> int:
    """Bytes of a core that only these layers read, in any program."""
    inside: set[str] = set()
    outside: set[str] = set()
    for program in module.programs():
        function = inlined(module, program)
        layers = list(layers_of(function).values())
        chosen = {op for number in numbers for op in layers[number]}
        for op in function.block:
            (inside if op in chosen else outside).update(_arguments(op))
    rows = [module.interface[name] for name in inside - outside if name in module.interface]
    return sum(row.physical.nbytes for row in rows if row.role in HELD_BYTES)


def _arguments(op: Op) -> set[str]:
    return {value.name for value in op.operands if value.op is None and value.name is not None}
