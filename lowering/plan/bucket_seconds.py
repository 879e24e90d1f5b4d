"""The time of the program of each bucket, by the roofline of the compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.config.compile_config import CompileConfig
from graphgen.lowering.cost.roofline import roofline
from graphgen.lowering.plan.measure import core_bytes, few_layers, logical_module
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import Accelerator

# Seconds of a call by bucket.
Seconds = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class ProgramBound:
    """Bounds from below of a call of a program.

    Attributes:
        seconds: of the call.
        link_bytes: that a chip sends.
        core_bytes: of a core that holds what all programs compiled together read, and values.
        node_bytes: that a node sends to others.
    """

    seconds: float
    link_bytes: int
    core_bytes: int
    node_bytes: int = 0


# Bounds by phase and bucket.
ProgramBounds = Mapping[tuple[str, int], ProgramBound]


def program_bounds(
    config: Mapping[str, object],
    device: Accelerator,
    demand: CompileConfig,
    phases: tuple[str, ...],
    period: int,
) -> ProgramBounds:
    """Bounds of a call of each program, which are compiled together: their weights lie alike.

    Args:
        config: a ``config.json``; Hugging Face's names.
        device: the accelerator.
        demand: the buckets and batch sizes, and the ranks.
        phases: of ``prefill``, ``decode`` and ``verify``.
        period: what :func:`graphgen.lowering.plan.measure.layer_period` says of ``config``. Two
            short models then stand for it, with the cost of a period for each further one.

    Raises:
        GraphgenError: GG0304 where the model cannot be split over the ranks.
    """
    demand = replace(demand, target=device.name)
    short = few_layers(config, period)
    if short is None:
        return _bounds(config, device, demand, phases)
    few = _bounds(short.few, device, demand, phases)
    most = _bounds(short.most, device, demand, phases)
    return {
        key: ProgramBound(
            last.seconds + short.more * (last.seconds - few[key].seconds),
            last.link_bytes + short.more * (last.link_bytes - few[key].link_bytes),
            last.core_bytes + short.more * (last.core_bytes - few[key].core_bytes),
            last.node_bytes + short.more * (last.node_bytes - few[key].node_bytes),
        )
        for key, last in most.items()
    }


def bucket_seconds(
    config: Mapping[str, object],
    device: Accelerator,
    demand: CompileConfig,
    phase: str,
    period: int,
) -> Seconds:
    """Seconds of a call of each program of one phase, compiled alone: see :func:`program_bounds`.

    Raises:
        GraphgenError: GG0304 where the model cannot be split over the ranks.
    """
    found = program_bounds(config, device, demand, (phase,), period)
    return {bucket: bound.seconds for (_, bucket), bound in found.items()}


def _bounds(
    config: Mapping[str, object],
    device: Accelerator,
    demand: CompileConfig,
    phases: tuple[str, ...],
) -> ProgramBounds:
    module = logical_module(config, demand, phases)
    run_pipeline(module, default(demand))
    found: dict[tuple[str, int], ProgramBound] = {}
    held = core_bytes(module)
    for function in module.programs():
        bucket = function.dims["C"]
        assert isinstance(bucket, int), bucket
        line = roofline(module, function, device)
        sent = line.total
        found[function.phase, bucket] = ProgramBound(
            line.seconds, sent.link_bytes, held, sent.node_bytes
        )
    return found
