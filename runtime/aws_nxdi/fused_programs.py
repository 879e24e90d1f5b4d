"""Build an application's programs and weights, and the draft's for fused speculation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphgen.config.compile_config import CompileConfig
from graphgen.exec.speculative_step import DRAFT
from graphgen.ir import Module, Role
from graphgen.lowering.cpu.pjrt import CPU
from graphgen.runtime.aws_config.draft_checks import (
    fused_draft,
    fused_draft_config,
    fused_settings,
    is_fused,
)
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.model import BuiltModel, build_model
from graphgen.runtime.speculation.fused_model import JoinedCheckpoint, build_fused_model


def build_programs(
    model: Mapping[str, object],
    config: InferenceConfig,
    settings: CompileConfig,
    report: Callable[[float], None] | None = None,
) -> BuiltModel:
    """The programs of a model, or of a model and its draft.

    Args:
        model: its ``config.json``.
        config: of the application.
        settings: what it requests.
        report: called with the fraction of the passes that have run.
    """
    if is_fused(config.neuron_config):
        own = fused_settings(config, settings)
        built = build_fused_model(model, settings, fused_draft_config(config), own)
    else:
        built = build_model(model, settings, report=report)
    if settings.target != CPU and config.neuron_config.value("layer_boundary_markers"):
        # Only here: most configurations want none.
        from graphgen.passes.core import run_pipeline
        from graphgen.passes.outline.mark_layers import MarkLayers

        run_pipeline(built.module, [MarkLayers()])
    return built


def own_weights(module: Module) -> Sequence[str]:
    """The names of the weights that are not the draft's."""
    names = [row.name for row in module.entries(Role.WEIGHT)]
    return [name for name in names if not name.startswith(DRAFT)]


def with_draft(checkpoint: Checkpoint, config: InferenceConfig, module: Module) -> Checkpoint:
    """A checkpoint with the tensors of the draft that the programs have, if they have one."""
    if not is_fused(config.neuron_config):
        return checkpoint
    return JoinedCheckpoint(checkpoint, fused_draft(config)).of(module)
