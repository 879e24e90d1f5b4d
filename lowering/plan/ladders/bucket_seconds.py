"""The time of the program of each bucket, by the roofline of the compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphgen.compile_config import CompileConfig
from graphgen.ir import dtype
from graphgen.lowering.cost.roofline import roofline
from graphgen.lowering.plan.measure import few_layers
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import Accelerator

# Seconds of a call by bucket.
Seconds = Mapping[int, float]


def bucket_seconds(
    config: Mapping[str, object],
    device: Accelerator,
    demand: CompileConfig,
    phase: str,
    period: int,
) -> Seconds:
    """Seconds of a call of each program of a phase: bounds from below.

    Args:
        config: a ``config.json``; Hugging Face's names.
        device: the accelerator.
        demand: the buckets and the batch size of the phase, and the ranks.
        phase: ``prefill``, ``decode`` or ``verify``.
        period: what :func:`graphgen.lowering.plan.measure.layer_period` says of ``config``. Two
            short models then stand for it, with the time of a period for each further one.

    Raises:
        GraphgenError: GG0304 where the model cannot be split over the ranks.
    """
    demand = replace(demand, target=device.name)
    short = few_layers(config, period)
    if short is None:
        return _seconds(config, device, demand, phase)
    few = _seconds(short.few, device, demand, phase)
    most = _seconds(short.most, device, demand, phase)
    return {size: most[size] + short.more * (most[size] - few[size]) for size in most}


def _seconds(
    config: Mapping[str, object], device: Accelerator, demand: CompileConfig, phase: str
) -> Seconds:
    module = build(config, dtype(demand.dtype), phases=(phase,))
    run_pipeline(module, default(demand))
    found: dict[int, float] = {}
    for function in module.programs():
        bucket = function.dims["C"]
        assert isinstance(bucket, int), bucket
        found[bucket] = roofline(module, function, device).seconds
    return found
