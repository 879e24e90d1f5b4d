"""The attributes of EAGLE: the hidden states that a target returns, and its draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from graphgen.errors import GraphgenError
from graphgen.models import family_of
from graphgen.models.eagle import target_layers
from graphgen.models.first_layers import stated_layers
from graphgen.runtime.aws.config.neuron_config import FusedSpecNeuronConfig, NeuronConfig

if TYPE_CHECKING:
    from graphgen.runtime.aws.config.inference_config import InferenceConfig


def eagle_layers(config: NeuronConfig, model: Mapping[str, object]) -> tuple[int, ...]:
    """The ``feature_layers`` that the attributes of a target request; empty without EAGLE.

    Args:
        config: of the target.
        model: its ``config.json``.
    """
    if not config.value("enable_eagle_speculation"):
        return ()
    _, layers = stated_layers(family_of(model), model)
    version = 3 if config.value("is_eagle3") else 1
    return target_layers(version, cast(int, layers))


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
    if not attributes.value("speculation_length"):
        raise GraphgenError(
            "GG0903",
            "enable_eagle_speculation needs speculation_length",
            help="set it to the tokens that a step verifies, such as 5",
        )
    if draft_path(fused) is None:
        raise GraphgenError(
            "GG0903",
            "enable_eagle_speculation needs a draft",
            help="set fused_spec_config=FusedSpecNeuronConfig(..., draft_model_path=...)",
        )


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
