"""The phase ``canonicalize``: one form for models, changes before programs have sizes."""

from __future__ import annotations

from graphgen.config.compile_config import AdapterOptions, CompileConfig
from graphgen.config.option_words import ATTENTION_OF_MODEL, PLAIN_DTYPE
from graphgen.passes.canonical.canonicalize import Canonicalize
from graphgen.passes.canonical.unfuse_projections import UnfuseProjections
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.lora.multi_lora import MultiLora
from graphgen.passes.precision.attention_dtype import AttentionDtype
from graphgen.passes.precision.cast_logits import CastLogits
from graphgen.passes.precision.router_dtype import RouterDtype


def canonicalize(config: CompileConfig) -> list[Pass]:
    """One form for what models write in several ways, and the element types of the options."""
    cast, attention = config.cast_logits_dtype, config.attention_dtype
    router = config.router_dtype
    return [
        *([CastLogits(cast)] if cast != PLAIN_DTYPE else []),
        *parse_pipeline(config.sampling),
        *(Canonicalize(), UnfuseProjections()),
        *([AttentionDtype(attention)] if attention != ATTENTION_OF_MODEL else []),
        *([RouterDtype(router)] if router != PLAIN_DTYPE else []),
        *_adapters(config),
    ]


def _adapters(config: AdapterOptions) -> list[Pass]:
    """Adapters before all that lays out, quantizes, splits or fuses projections."""
    slots, rank, targets = config.max_loras, config.max_lora_rank, config.lora_target_modules
    return [MultiLora(slots, rank, targets)] if slots else []
