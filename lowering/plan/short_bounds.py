"""Bounds of a deep model's programs, from one short model compiled for a mesh.

:func:`graphgen.lowering.plan.ladders.bucket_seconds.program_bounds` compares two short models, and
what the deeper one takes more is a period of layers. Here a period is read off the layers of one:
those that are neither the first nor the last, whose neighbors are as in the middle of a deep model.
That takes less than half of the time, and :mod:`graphgen.lowering.plan.mesh_search` compiles many
meshes.

A target without rates, the CPU, has costs instead of seconds: those that ``partition`` minimizes,
in bytes that a rank sends (:func:`graphgen.lowering.plan.sent_cost.sent_cost`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.analysis.calls import inlined
from graphgen.analysis.layers import layers_of
from graphgen.compile_config import CompileConfig
from graphgen.ir import Function, Module, Op, Role, dtype
from graphgen.lowering.cost.roofline import roofline
from graphgen.lowering.plan.ladders.bucket_seconds import ProgramBound, ProgramBounds
from graphgen.lowering.plan.measure import core_bytes, few_layers
from graphgen.lowering.plan.sent_cost import partitioned_only, sent_cost
from graphgen.models import build
from graphgen.models.family_registry import family_of
from graphgen.models.first_layers import stated_layers
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import Accelerator

_HELD = (Role.PARAM, Role.WEIGHT, Role.STATE, Role.SLOTTED)


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
    short = few_layers(config, period)
    model, more = (config, 0) if short is None else (short.few, short.more + 1)
    module = build(model, dtype(demand.dtype), phases=phases)
    if device is None:
        run_pipeline(module, partitioned_only(default(demand)))
    else:
        run_pipeline(module, default(replace(demand, target=device.name)))
    _, count = stated_layers(family_of(model), model)
    middle = range(0) if count is None else range(count - 1 - period, count - 1)
    held = 0 if device is None else core_bytes(module) + more * _layer_bytes(module, middle)
    found: dict[tuple[str, int], ProgramBound] = {}
    for function in module.programs():
        bucket = function.dims["C"]
        assert isinstance(bucket, int), bucket
        costs = _layer_costs(module, function, device)
        assert not more or len(costs.layers) == count, f"{len(costs.layers)} layers of {count}"
        repeated = [costs.layers[number] for number in middle] if more else []
        found[function.phase, bucket] = ProgramBound(
            costs.seconds + more * sum(layer.seconds for layer in repeated),
            costs.link_bytes + more * sum(layer.link_bytes for layer in repeated),
            held,
            costs.node_bytes + more * sum(layer.node_bytes for layer in repeated),
        )
    return found


@dataclass(frozen=True, slots=True)
class _LayerCost:
    """Seconds, or what stands for them, and bytes over links, of a layer."""

    seconds: float
    link_bytes: int = 0
    node_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _LayerCosts(_LayerCost):
    """The same of a program, and of each of its layers."""

    layers: Sequence[_LayerCost] = ()


def _layer_costs(module: Module, function: Function, device: Accelerator | None) -> _LayerCosts:
    if device is None:
        by_layer = layers_of(function)
        layers = [_LayerCost(sent_cost(module, function, ops)) for ops in by_layer.values()]
        return _LayerCosts(sent_cost(module, function, list(function.block)), layers=layers)
    line = roofline(module, function, device)
    layers = [
        _LayerCost(group.each.seconds, group.each.link_bytes, group.each.node_bytes)
        for group in line.groups
        if group.first
        for _ in range(group.count)
    ]
    return _LayerCosts(line.seconds, line.total.link_bytes, line.total.node_bytes, layers)


def _layer_bytes(module: Module, numbers: range) -> int:
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
    return sum(row.physical.nbytes for row in rows if row.role in _HELD)


def _arguments(op: Op) -> set[str]:
    return {value.name for value in op.operands if value.op is None and value.name is not None}
