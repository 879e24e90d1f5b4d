"""The default pipeline: the phases of a compilation, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import integer, list_of, option
from graphgen.errors import GraphgenError
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.core.fuel import labels
from graphgen.passes.core.order import check_order
from graphgen.passes.core.registry import NamedPipeline, Phase, parse_phases, register_pipeline
from graphgen.passes.inspect.debug_log import pick
from graphgen.passes.kv_cache.cache_bits import CacheAsBits
from graphgen.passes.kv_cache.pad_cache_slots import PadCacheSlots
from graphgen.passes.legalize.integer_products import IntegerProducts
from graphgen.passes.legalize.neuron_f8 import F8Formats
from graphgen.passes.legalize.order_interface import OrderInterface
from graphgen.passes.option_conflicts import check_combinations
from graphgen.passes.phases import finish
from graphgen.passes.phases.canonicalize import canonicalize
from graphgen.passes.phases.fuse import fuse
from graphgen.passes.phases.quantize import quantize
from graphgen.passes.phases.shard import shard
from graphgen.passes.phases.specialize import specialize
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.targets import Target, find_target, target_names

# Passes that targets and options name: imported here, so that finding one by its name does not
# import every other pass (and NumPy with them).
NAMED_PASSES: tuple[type[Pass], ...] = (
    CacheAsBits,
    F8Formats,
    IntegerProducts,
    OrderInterface,
    PadCacheSlots,
    QuantizeWeights,
)
PHASES: Final[Mapping[str, Callable[[CompileConfig], list[Pass]]]] = {
    "canonicalize": canonicalize,
    "quantize": quantize,
    "specialize": specialize,
    "shard": shard,
    "fuse": fuse,
    "weights": finish.weights,
    "legalize": finish.legalize,
    "outline": finish.outline,
    "steps": finish.steps,
    "stages": finish.stages,
}
"""The phases of a compilation, in order: the passes of each for the options."""


def phases(config: CompileConfig) -> tuple[Phase, ...]:
    """The phases that bring a logical module to programs ready to be lowered.

    A target adds passes at the end of a phase: see ``graphgen/targets``.

    Raises:
        GraphgenError: GG0301 and GG0302 for a pass or an option that does not exist, GG0302 for
            fewer ranks than one, for batch sizes that a strategy cannot have, for kernels of
            another target and for caches in a format that the target has not.
    """
    if config.tp < 1:
        raise GraphgenError("GG0302", f"default: tp={config.tp} must be at least 1")
    check_combinations(config)
    own = {name: passes(config) for name, passes in PHASES.items()}
    _check_target(config.target, tuple(own))
    return tuple(Phase(name, (*passes, *_of_target(config, name))) for name, passes in own.items())


def default(config: CompileConfig) -> list[Pass]:
    """The passes of all :func:`phases`."""
    return passes_of(phases(config))


def _check_target(name: str, known: Sequence[str]) -> None:
    """Refuse a target that adds passes to a phase that does not exist (GG0302)."""
    target = find_target(name) if name in target_names() else Target(name)
    for phase in (*target.passes, *target.quantized_passes):
        if phase not in known:
            what = f"target '{name}' adds passes to the unknown phase '{phase}'"
            raise GraphgenError("GG0302", what, help=f"phases: {', '.join(known)}")


def _of_target(config: CompileConfig, phase: str) -> list[Pass]:
    """The passes that the target adds to a phase; ``legalize`` refuses an unknown target."""
    if config.target not in target_names():
        return []
    target = find_target(config.target)
    texts = [target.passes.get(phase, "")]
    if config.quantization:
        texts.append(target.quantized_passes.get(phase, ""))
    return parse_pipeline(",".join([text for text in texts if text]))


@register_pipeline
@dataclass(frozen=True, kw_only=True)
class Default(CompileConfig, NamedPipeline):
    """From the logical module to programs ready to be lowered for a target."""

    name: ClassVar[str] = "default"

    def passes(self) -> list[Pass]:
        """The passes, for these options."""
        return default(self)

    def phases(self) -> tuple[Phase, ...]:
        """The table of the default pipeline, for these options."""
        return phases(self)


# Sizes of programs that NumPy evaluates in seconds: rows that differ, and a change of bucket.
SMALL = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))


@register_pipeline
@dataclass(frozen=True, kw_only=True)
class Small(Default):
    """The default pipeline with programs that NumPy runs in seconds, as ``validate`` takes them."""

    name: ClassVar[str] = "small"
    batch: tuple[int, ...] = option(list_of(integer()), SMALL.batch, "sizes of B.", flag=None)
    context: tuple[int, ...] = option(
        list_of(integer()), SMALL.context, "buckets of the prefill programs.", flag=None
    )
    tokens: tuple[int, ...] = option(
        list_of(integer()), SMALL.tokens, "buckets of the decode programs.", flag=None
    )


def parse(text: str, config: CompileConfig | None = None) -> list[Pass]:
    """Passes from text, where ``default{target=cpu,tp=2}`` stands for the default pipeline.

    Args:
        text: see :func:`parse_pipeline`.
        config: the options of the default pipeline that the text does not name.

    Raises:
        GraphgenError: GG0301, GG0302, and GG0303 for an order that is wrong for every module.
    """
    return passes_of(parse_in_phases(text, config))


def parse_in_phases(text: str, config: CompileConfig | None = None) -> list[Phase]:
    """The same in phases; passes that ``text`` names one by one are in phases without a name."""
    named = Default(**vars(config)) if config is not None else Default()
    found = parse_phases(text, [named])
    check_order(passes_of(found))
    return found


def passes_of(phases: Sequence[Phase]) -> list[Pass]:
    """The passes of all phases."""
    return [item for phase in phases for item in phase.passes]


def range_of(phases: Sequence[Phase], name: str, option: str) -> range:
    """The positions in :func:`passes_of` of the pass, or of the passes of the phase, ``name``.

    Args:
        phases: of a pipeline.
        name: of a pass, ``cse#2`` for the second of one name; else of a phase. ``phase:NAME`` is a
            phase even if a pass has the name.
        option: for the error.

    Raises:
        GraphgenError: GG0705 for an unknown name, with the passes of the pipeline.
    """
    passes = passes_of(phases)
    wanted = name.removeprefix("phase:")
    if wanted != name or name not in labels(passes):
        at = 0
        for phase in phases:
            if phase.name and phase.name == wanted:
                return range(at, at + len(phase.passes))
            at += len(phase.passes)
    number = pick(passes, name, option)
    return range(number, number + 1)
