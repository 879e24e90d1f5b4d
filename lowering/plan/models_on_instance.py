"""The known models that fit one instance, each on as many of its cores as it can be split over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.plan.capacity_plan import Degree, degrees_up_to_choice
from graphgen.targets import Accelerator


def models_on_instance(
    shapes: Mapping[str, Mapping[str, object]],
    target: Accelerator,
    demand: CompileConfig,
    instance: str,
    report: Callable[[float], None] = lambda _: None,
) -> Iterator[tuple[str, Degree]]:
    """Plan each model for the cores of an instance.

    Args:
        shapes: configurations by name.
        target: that has the instance.
        demand: the configuration to compile for; its ``tp`` is not used.
        instance: whose cores bound the ranks.
        report: called with the share of the models that are done.

    Yields:
        The name of each model and the largest degree that it can be split over; a model that the
        demand does not fit has a degree of one rank with the reason.
    """
    for place, (name, config) in enumerate(shapes.items()):
        yield name, _largest(config, target, demand, target.cores(instance))
        report((place + 1) / len(shapes))


def _largest(
    config: Mapping[str, object], target: Accelerator, demand: CompileConfig, cores: int
) -> Degree:
    tp = cores
    while True:
        try:
            (found,) = degrees_up_to_choice(config, target, demand, tp)
        except GraphgenError as error:
            return Degree(1, None, 0, error.what)
        if found.use is not None or tp == 1:
            return found
        tp //= 2
