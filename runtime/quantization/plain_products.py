"""A compilation parted where all products are plain, those of experts too, for calibration."""

from __future__ import annotations

from graphgen.compile_config import CompileConfig
from graphgen.passes.core import Pass
from graphgen.passes.experts.dispatch_experts import DispatchExperts
from graphgen.passes.pipelines import phases
from graphgen.targets import DEFAULT_ACCELERATOR


def around_products(config: CompileConfig) -> tuple[list[Pass], list[Pass]]:
    """The passes of a compilation up to plain products of experts, and those that follow."""
    every = phases(config)
    names = [phase.name for phase in every]
    last = names.index("specialize") + 1
    before, after = (
        [item for phase in part for item in phase.passes] for part in (every[:last], every[last:])
    )
    # A buffer for each expert, with room for all tokens, and no loop over them as on the CPU.
    return [*before, DispatchExperts("capacity", target=DEFAULT_ACCELERATOR)], after
