"""The attributes of fused speculation: the draft that is part of a target's programs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.read_file import is_there
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.neuron_config import FusedSpecNeuronConfig, NeuronConfig
from graphgen.runtime.checkpoint.config_file import read_config
from graphgen.runtime.checkpoint.dtype_policy import AS_DECLARED
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint, is_eagle
from graphgen.runtime.speculation.fused_model import FusedDraft, settings_of_draft

if TYPE_CHECKING:
    from graphgen.runtime.aws_config.inference_config import InferenceConfig


def check_eagle(config: InferenceConfig) -> None:
    """Refuse a draft as an application, and a target without a draft (GG0903, GG0904)."""
    attributes, fused = config.neuron_config, config.fused_spec_config
    if attributes.value("is_eagle_draft"):
        raise GraphgenError(
            "GG0904",
            "is_eagle_draft: a draft as an application of its own is not built yet",
            help="give it to its target: fused_spec_config=FusedSpecNeuronConfig(..., "
            "draft_config=..., draft_model_path=...)",
        )
    if not attributes.value("enable_eagle_speculation"):
        return
    if draft_path(fused) is None:
        raise GraphgenError(
            "GG0903",
            "enable_eagle_speculation needs a draft",
            help="set fused_spec_config=FusedSpecNeuronConfig(..., draft_model_path=...)",
        )


def eagle_checkpoint(
    config: InferenceConfig, model_path: str, folder: Path | None = None
) -> EagleCheckpoint | None:
    """The draft of EAGLE with its target's tensors, if it is what the attributes say.

    Args:
        config: of the target.
        model_path: its checkpoint.
        folder: the draft's in a compiled folder, which is whole; ``None`` for none.

    Returns:
        The draft, or ``None`` without EAGLE.

    Raises:
        GraphgenError: GG0903 for a draft of another kind, GG06xx for its files.
    """
    if not config.neuron_config.value("enable_eagle_speculation"):
        return None
    path = str(folder or draft_path(config.fused_spec_config))
    own = open_checkpoint(locate(path, plain_names=True) or Path(path))
    if not is_eagle(own):
        raise GraphgenError(
            "GG0903",
            f"draft_model_path={path} is not an EAGLE draft: it has no tensor fc.weight",
            help="give a draft of EAGLE, or set enable_eagle_speculation=False",
        )
    target = None
    if folder is None:
        target = open_checkpoint(locate(model_path, plain_names=True) or Path(model_path))
    made = EagleCheckpoint(own, target)
    attributes = draft_attributes(config.fused_spec_config) or config.neuron_config
    third = made.config["eagle_version"] == 3
    expected = {"is_eagle3": third}
    if not third:
        expected["enable_eagle_draft_input_norm"] = bool(made.config["input_norm"])
    for name, value in expected.items():
        if bool(attributes.value(name)) is not value:
            raise GraphgenError(
                "GG0903",
                f"the draft at {path} has {name}={value} by its tensors, and the configuration "
                f"says {not value}",
                help=f"set {name}={value} for draft and target",
            )
    return made


def draft_path(fused: object) -> str | None:
    """The checkpoint of the draft of a ``fused_spec_config``, if it has one."""
    if not isinstance(fused, FusedSpecNeuronConfig):
        return None
    return cast("str | None", fused.value("draft_model_path"))


def draft_attributes(fused: object) -> NeuronConfig | None:
    """The NeuronConfig of the draft of a ``fused_spec_config``, if it has one."""
    if not isinstance(fused, FusedSpecNeuronConfig):
        return None
    config = cast("InferenceConfig | None", fused.value("draft_config"))
    return None if config is None else config.neuron_config


def check_draft_adapters(draft: NeuronConfig | None, target: NeuronConfig) -> None:
    """Refuse adapters of a draft's own (GG0904).

    The target's own ``lora_config`` is ignored: AWS's documents make a draft's configuration as a
    copy of its target's. The draft proposes without adapters.
    """
    lora = None if draft is None else draft.value("lora_config")
    if lora is None or lora == target.value("lora_config"):
        return
    raise GraphgenError(
        "GG0904",
        "lora_config of a draft's NeuronConfig: adapters of a draft are not built yet; rows of the "
        "target have those of its own lora_config",
        help="leave lora_config of the draft out, or give a draft with an adapter merged into its "
        "weights",
    )


def is_fused(attributes: NeuronConfig) -> bool:
    """True for programs of draft and target; EAGLE's are programs of their own."""
    fused = bool(attributes.value("enable_fused_speculation"))
    return fused and not attributes.value("enable_eagle_speculation")


def check_fused(config: InferenceConfig) -> None:
    """Refuse fused programs without what they need, and what needs them (GG0903).

    A draft may be a copy of its target that only fusion was taken from, and is not checked here.
    """
    attributes, fused = config.neuron_config, config.fused_spec_config
    ahead = attributes.value("async_mode") and attributes.value("speculation_length")
    if ahead and not attributes.value("enable_fused_speculation"):
        raise GraphgenError(
            "GG0903",
            "NeuronConfig.async_mode with speculation_length needs enable_fused_speculation",
            help="set enable_fused_speculation, or leave async_mode out",
        )
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
    checkpoint = open_checkpoint(_draft_location(config))
    return FusedDraft(checkpoint, checkpoint.config)


def fused_draft_config(config: InferenceConfig) -> Mapping[str, object]:
    """The ``config.json`` of a draft, whose weights may be missing (GG05xx and GG06xx)."""
    try:
        return fused_draft(config).config
    except GraphgenError:
        folder = _draft_location(config)
        if not is_there(folder / "config.json"):
            raise
        return read_config(folder)


def _draft_location(config: InferenceConfig) -> Path:
    path = cast(str, draft_path(config.fused_spec_config))
    return locate(path, plain_names=True) or Path(path)


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
    attributes = copy.deepcopy(attributes)
    # A copy of its target's, which it has not.
    attributes.lora_config = None
    kept = config.neuron_config.value("draft_model_modules_to_not_convert")
    if kept is not None:
        attributes.modules_to_not_convert = kept
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
