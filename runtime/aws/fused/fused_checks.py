"""The attributes of fused speculation: the draft that is part of a target's programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.aws.config.compile_settings import compile_settings
from graphgen.runtime.aws.config.eagle_checks import draft_attributes, draft_path
from graphgen.runtime.aws.config.neuron_config import NeuronConfig
from graphgen.runtime.checkpoint.dtype_policy import AS_DECLARED
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.speculation.fused.fused_model import settings_of_draft
from graphgen.runtime.speculation.fused.joined_checkpoint import FusedDraft

if TYPE_CHECKING:
    from graphgen.runtime.aws.config.inference_config import InferenceConfig


def is_fused(attributes: NeuronConfig) -> bool:
    """True for programs of draft and target; EAGLE's are programs of their own."""
    fused = bool(attributes.value("enable_fused_speculation"))
    return fused and not attributes.value("enable_eagle_speculation")


def check_fused(config: InferenceConfig) -> None:
    """Refuse fused programs without what they need (GG0903)."""
    attributes, fused = config.neuron_config, config.fused_spec_config
    if not is_fused(attributes):
        return
    if draft_path(fused) is None:
        raise GraphgenError(
            "GG0903",
            "enable_fused_speculation needs a draft",
            help="set fused_spec_config=FusedSpecNeuronConfig(..., draft_model_path=...)",
        )
    if attributes.value("on_device_sampling_config") is None:
        raise GraphgenError(
            "GG0903",
            "enable_fused_speculation needs on_device_sampling_config: the programs accept tokens "
            "that they choose",
            help="set on_device_sampling_config=OnDeviceSamplingConfig()",
        )


def fused_draft(config: InferenceConfig) -> FusedDraft:
    """The draft of a target's programs (GG05xx and GG06xx for its files)."""
    path = cast(str, draft_path(config.fused_spec_config))
    checkpoint = open_checkpoint(locate(path, plain_names=True) or Path(path))
    return FusedDraft(checkpoint, checkpoint.config)


def fused_settings(config: InferenceConfig, settings: CompileConfig) -> CompileConfig:
    """The configuration of the draft's programs.

    Args:
        config: of the target; the draft's NeuronConfig says its element type, its ranks and how it
            is quantized.
        settings: of the target.
    """
    made = replace(settings_of_draft(settings), target=settings.target)
    attributes = draft_attributes(config.fused_spec_config)
    if attributes is None:
        return made
    own = compile_settings(attributes, settings.target)
    dtype = made.dtype if own.dtype == AS_DECLARED else own.dtype
    return replace(
        made,
        dtype=dtype,
        tp=own.tp,
        quantization=own.quantization,
        kv_cache_quant=own.kv_cache_quant,
        kv_cache_dtype=own.kv_cache_dtype,
    )
