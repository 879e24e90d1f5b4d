"""transformers-neuronx's classes of models, by family."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from graphgen.runtime.aws_config.tnx_config import TnxNeuronConfig
from graphgen.runtime.aws_tnx.tnx_model import TnxModel


class LlamaForSampling(TnxModel):
    """Llama."""

    model_types: ClassVar[tuple[str, ...]] = ("llama",)


class MistralForSampling(TnxModel):
    """Mistral."""

    model_types: ClassVar[tuple[str, ...]] = ("mistral",)


class MixtralForSampling(TnxModel):
    """Mixtral."""

    model_types: ClassVar[tuple[str, ...]] = ("mixtral",)


class GPT2ForSampling(TnxModel):
    """GPT-2."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt2",)


class GPT2ForSamplingWithContextBroadcasting(GPT2ForSampling):
    """GPT-2 whose prompts may be fewer than its sequences: see ``prompt_batch_size``."""


class GPTJForSampling(TnxModel):
    """GPT-J."""

    model_types: ClassVar[tuple[str, ...]] = ("gptj",)


class GPTNeoXForSampling(TnxModel):
    """GPT-NeoX."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_neox",)


class BloomForSampling(TnxModel):
    """BLOOM."""

    model_types: ClassVar[tuple[str, ...]] = ("bloom",)


class OPTForSampling(TnxModel):
    """OPT."""

    model_types: ClassVar[tuple[str, ...]] = ("opt",)


class Qwen2ForSampling(TnxModel):
    """Qwen2."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen2",)


class Qwen3ForSampling(TnxModel):
    """Qwen3."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3",)


_CLASSES: tuple[type[TnxModel], ...] = (
    LlamaForSampling,
    MistralForSampling,
    MixtralForSampling,
    GPT2ForSamplingWithContextBroadcasting,
    GPTJForSampling,
    GPTNeoXForSampling,
    BloomForSampling,
    OPTForSampling,
    Qwen2ForSampling,
    Qwen3ForSampling,
)
_BY_TYPE = {name: cls for cls in _CLASSES for name in cls.model_types}


class NeuronAutoModelForCausalLM:
    """Finds the class of a model by its ``config.json``."""

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_path: str | Path,
        *,
        neuron_config: TnxNeuronConfig | None = None,
        **options: object,
    ) -> TnxModel:
        """Open a checkpoint with the class of its family; see :meth:`TnxModel.from_pretrained`."""
        model = TnxModel.from_pretrained(
            pretrained_model_path, neuron_config=neuron_config, **options
        )
        found = _BY_TYPE.get(str(model.config.get("model_type")))
        return model if found is None else model.of_class(found)
