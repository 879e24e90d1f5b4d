"""NxD Inference's configurations as classes of the table."""

from __future__ import annotations

from typing import ClassVar

from graphgen.runtime.aws.config.strict_config import StrictConfig


class NeuronConfig(StrictConfig):
    """Compile-time and run-time options."""

    owner: ClassVar[str] = "NeuronConfig"


class OnDeviceSamplingConfig(StrictConfig):
    """Options of programs that choose the tokens."""

    owner: ClassVar[str] = "OnDeviceSamplingConfig"


class KVQuantizationConfig(StrictConfig):
    """The numbers and scales of a quantized cache."""

    owner: ClassVar[str] = "KVQuantizationConfig"


class LoraServingConfig(StrictConfig):
    """Adapters that requests choose from."""

    owner: ClassVar[str] = "LoraServingConfig"


class ChunkedPrefillConfig(StrictConfig):
    """Prompts in chunks."""

    owner: ClassVar[str] = "ChunkedPrefillConfig"


class FusedSpecNeuronConfig(StrictConfig):
    """Draft and target of fused speculation."""

    owner: ClassVar[str] = "FusedSpecNeuronConfig"
    positional: ClassVar[tuple[str, ...]] = (
        "worker_cls",
        "draft_config",
        "draft_model_path",
        "draft_model_cls",
    )


class LlamaNeuronConfig(NeuronConfig):
    """The options of Llama models."""


class MistralNeuronConfig(NeuronConfig):
    """The options of Mistral models."""


class Qwen2NeuronConfig(NeuronConfig):
    """The options of Qwen2 models."""


class Qwen3NeuronConfig(NeuronConfig):
    """The options of Qwen3 models."""


class Gemma3NeuronConfig(NeuronConfig):
    """The options of Gemma 3 models."""
