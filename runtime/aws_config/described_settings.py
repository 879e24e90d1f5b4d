"""A compilation as AWS's ``neuron_config.json``, where its attributes can say all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.compile_settings import ELEMENTS, compile_settings
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.neuron_config import LoraServingConfig, NeuronConfig
from graphgen.targets import Accelerator

# Fields that a device does not read.
_OF_THE_CPU = ("min_rows", "kernels")


def described_settings(
    model: Mapping[str, object],
    settings: CompileConfig,
    device: Accelerator,
    *,
    marked: bool = False,
) -> str:
    """The text of a ``neuron_config.json`` that asks for the same programs; empty for none.

    Args:
        model: a ``config.json``.
        settings: the compilation.
        device: the target.
        marked: layers begin and end with marks for the compiler.
    """
    names = {ours: theirs for theirs, ours in ELEMENTS.items()}
    try:
        config = NeuronConfig(
            tp_degree=settings.tp,
            batch_size=settings.cache_rows,
            seq_len=settings.max_len,
            max_context_length=max(settings.context),
            enable_bucketing=True,
            context_encoding_buckets=list(settings.context),
            token_generation_buckets=list(settings.tokens),
            torch_dtype=names[settings.dtype],
            rpl_reduce_dtype=names[settings.rpl_reduce_dtype],
            kv_cache_quant=settings.kv_cache_quant,
            speculation_length=settings.speculation_length,
            logical_nc_config=device.lnc,
            layer_boundary_markers=marked,
            lora_config=_adapters(settings),
        )
        if _differences(compile_settings(config, device.name), settings):
            return ""
        plain = {name: value for name, value in model.items() if name != "dtype"}
        made = InferenceConfig(config)
        for name, value in plain.items():
            setattr(made, name, value)
        return made.to_json_string() + "\n"
    except (GraphgenError, KeyError):
        return ""


def _adapters(settings: CompileConfig) -> LoraServingConfig | None:
    """The configuration of slots for adapters; ``None`` for programs without."""
    if not settings.max_loras:
        return None
    return LoraServingConfig(
        max_loras=settings.max_loras,
        max_lora_rank=settings.max_lora_rank,
        target_modules=list(settings.lora_target_modules) or None,
    )


def _differences(described: CompileConfig, settings: CompileConfig) -> list[str]:
    """The fields in which the programs would differ."""
    return [
        item.name
        for item in fields(settings)
        if item.name not in _OF_THE_CPU
        and getattr(described, item.name) != getattr(settings, item.name)
    ]
