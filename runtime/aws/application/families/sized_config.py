"""Configurations that need the sizes of a decoder, without and with experts."""

from __future__ import annotations

from graphgen.runtime.aws.config.expert_config import MoENeuronConfig
from graphgen.runtime.aws.config.inference_config import InferenceConfig
from graphgen.runtime.aws.config.neuron_config import NeuronConfig

_SIZES = ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"]


class SizedConfig(InferenceConfig):
    """A configuration that needs the sizes of a decoder."""

    def get_required_attributes(self) -> list[str]:
        """The sizes."""
        return _SIZES


class ExpertsConfig(SizedConfig):
    """A configuration of a model with experts; it takes a NeuronConfig without options of them."""

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        """The class with options of experts."""
        return MoENeuronConfig

    @classmethod
    def accepted_neuron_config(cls) -> type[NeuronConfig]:
        """Any: options that are not given have defaults."""
        return NeuronConfig
