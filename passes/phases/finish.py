"""The last phases: weights apart, legal ops, layers as functions, several steps, stages."""

from __future__ import annotations

from graphgen.config.compile_config import CompileConfig
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.outline.outline_layers import OutlineLayers
from graphgen.passes.sharding.pipeline_stages import PipelineStages
from graphgen.passes.weights.lift import LiftWeights


def weights(config: CompileConfig) -> list[Pass]:
    """Compute values of weights alone once, in a function of their own."""
    return [LiftWeights()]


def legalize(config: CompileConfig) -> list[Pass]:
    """Primitive ops in the forms of the target, and nothing that is not read."""
    return [
        Legalize(target=config.target, min_rows=config.min_rows),
        CommonSubexpressions(),
        DeadCodeElimination(),
    ]


def outline(config: CompileConfig) -> list[Pass]:
    """Repeated layers as one function."""
    return [OutlineLayers()] if config.outline else []


def steps(config: CompileConfig) -> list[Pass]:
    """Programs of several decode steps; by name, since the pass needs NumPy."""
    count = config.steps_per_launch
    return parse_pipeline(f"unroll-steps{{steps={count}}}") if count > 1 else []


def stages(config: CompileConfig) -> list[Pass]:
    """Layers in stages of a pipeline, when every rank's program is whole."""
    count = config.pp_degree
    return [PipelineStages(count, config.target)] if count > 1 else []
