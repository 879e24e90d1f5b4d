"""The JSON form of an InferenceConfig: AWS's ``neuron_config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.config.config_json import config_json, read_config, read_object
from graphgen.runtime.aws.config.inference_config import InferenceConfig
from graphgen.runtime.aws.config.neuron_config import NeuronConfig

Config = TypeVar("Config", bound=InferenceConfig)


def inference_config_json(config: InferenceConfig) -> dict[str, object]:
    """The object of ``neuron_config.json``: nested configurations, and the model's attributes."""
    return {
        **config.to_hf(),
        "neuron_config": config_json(config.neuron_config),
        "fused_spec_config": None,
    }


def read_inference_config(kind: type[Config], text: str, changes: Mapping[str, object]) -> Config:
    """The configuration of a JSON text, with other values for some attributes.

    Raises:
        GraphgenError: GG0906 for a text without a JSON object, or without ``neuron_config``.
    """
    read = read_object(text)
    values = {**read, **changes}
    neuron_config = values.pop("neuron_config", None)
    if isinstance(neuron_config, Mapping):
        given = cast("Mapping[str, object]", neuron_config)
        neuron_config = read_config(kind.get_neuron_config_cls(), given)
    if not isinstance(neuron_config, NeuronConfig):
        raise _unreadable("has no neuron_config")
    fused = values.pop("fused_spec_config", None)
    return kind(neuron_config, None, fused_spec_config=fused, **values)


def _unreadable(what: str) -> GraphgenError:
    return GraphgenError(
        "GG0906", f"the configuration {what}", help="InferenceConfig.save writes one"
    )
