"""The pipeline of a model and its draft: each by itself to its ranks, then both together."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module
from graphgen.passes.canonical.inline_calls import InlineCalls
from graphgen.passes.core import Pass, PassReport, run_pipeline
from graphgen.passes.pipelines import passes_of, phases
from graphgen.passes.programs.fuse_speculation import FuseSpeculation
from graphgen.passes.programs.join_modules import join_modules

# The first of the phases that the joined module goes through.
_TOGETHER = "fuse"


@dataclass(frozen=True, slots=True)
class SplitPipeline:
    """The default pipeline in two parts.

    Attributes:
        alone: the passes of a model without its draft, or of a draft: to the programs of one rank.
        together: the passes of both.
    """

    alone: list[Pass]
    together: list[Pass]


def split_pipeline(config: CompileConfig) -> SplitPipeline:
    """The default pipeline of a configuration with ``speculation_length``, around the fusion."""
    every = phases(config)
    place = [phase.name for phase in every].index(_TOGETHER)
    fuse = [FuseSpeculation(config.speculation_length), InlineCalls()]
    return SplitPipeline(passes_of(every[:place]), [*fuse, *passes_of(every[place:])])


def fuse(
    target: tuple[Module, CompileConfig], draft: tuple[Module, CompileConfig]
) -> tuple[Module, list[PassReport]]:
    """Lower a model and its draft into one module that speculates by itself.

    Args:
        target: the logical module with programs that verify, which is changed; its configuration
            applies to the joined module too.
        draft: likewise; ``tp`` is 1 or that of the model.

    Returns:
        The module, and the reports of all passes.

    Raises:
        GraphgenError: GG0304 for modules that do not fit together, and those of the pipeline.
    """
    pipelines = [split_pipeline(config) for _, config in (target, draft)]
    reports = run_pipeline(target[0], pipelines[0].alone)
    reports += run_pipeline(draft[0], pipelines[1].alone)
    joined = join_modules(target[0], draft[0])
    return joined, [*reports, *run_pipeline(joined, pipelines[0].together)]
