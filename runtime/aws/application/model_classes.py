"""The application classes of the model families, with AWS's names."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.models.families.bloom import BLOOM
from graphgen.models.families.gemma3 import GEMMA3
from graphgen.models.families.gpt2 import GPT2
from graphgen.models.families.gpt_neox import GPT_NEOX
from graphgen.models.families.gptj import GPTJ
from graphgen.models.families.llama import LLAMA
from graphgen.models.families.mistral import MISTRAL
from graphgen.models.families.mixtures.mixtral import MIXTRAL
from graphgen.models.families.mixtures.qwen_moe import QWEN2_MOE, QWEN3_MOE
from graphgen.models.families.opt import OPT
from graphgen.models.families.qwen import QWEN2, QWEN3
from graphgen.runtime.aws.application.base_model import NeuronBaseModel
from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws.config.expert_config import MoENeuronConfig
from graphgen.runtime.aws.config.inference_config import InferenceConfig
from graphgen.runtime.aws.config.neuron_config import NeuronConfig

_SIZES = ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"]


class _SizedConfig(InferenceConfig):
    """A configuration that needs the sizes of a decoder."""

    def get_required_attributes(self) -> list[str]:
        """The sizes."""
        return _SIZES


class _ExpertsConfig(_SizedConfig):
    """A configuration of a model with experts; it takes a NeuronConfig without options of them."""

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        """The class with options of experts."""
        return MoENeuronConfig

    @classmethod
    def accepted_neuron_config(cls) -> type[NeuronConfig]:
        """Any: options that are not given have defaults."""
        return NeuronConfig


class LlamaInferenceConfig(_SizedConfig):
    """The configuration of Llama and models with the same mathematics, such as SmolLM2."""


class NeuronLlamaModel(NeuronBaseModel):
    """The model of Llama and models with the same mathematics, such as SmolLM2."""

    family = LLAMA


class NeuronLlamaForCausalLM(NeuronBaseForCausalLM):
    """Llama and models with the same mathematics, such as SmolLM2."""

    _STATE_DICT_MODEL_PREFIX = f"{LLAMA.prefix}."
    _model_cls = NeuronLlamaModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return LlamaInferenceConfig


class MistralInferenceConfig(_SizedConfig):
    """The configuration of Mistral."""


class NeuronMistralModel(NeuronBaseModel):
    """The model of Mistral."""

    family = MISTRAL


class NeuronMistralForCausalLM(NeuronBaseForCausalLM):
    """Mistral."""

    _STATE_DICT_MODEL_PREFIX = f"{MISTRAL.prefix}."
    _model_cls = NeuronMistralModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return MistralInferenceConfig


class Qwen2InferenceConfig(_SizedConfig):
    """The configuration of Qwen2 and Qwen2.5."""


class NeuronQwen2Model(NeuronBaseModel):
    """The model of Qwen2 and Qwen2.5."""

    family = QWEN2


class NeuronQwen2ForCausalLM(NeuronBaseForCausalLM):
    """Qwen2 and Qwen2.5."""

    _STATE_DICT_MODEL_PREFIX = f"{QWEN2.prefix}."
    _model_cls = NeuronQwen2Model

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return Qwen2InferenceConfig


class Qwen3InferenceConfig(_SizedConfig):
    """The configuration of Qwen3."""


class NeuronQwen3Model(NeuronBaseModel):
    """The model of Qwen3."""

    family = QWEN3


class NeuronQwen3ForCausalLM(NeuronBaseForCausalLM):
    """Qwen3."""

    _STATE_DICT_MODEL_PREFIX = f"{QWEN3.prefix}."
    _model_cls = NeuronQwen3Model

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return Qwen3InferenceConfig


class Gemma3InferenceConfig(_SizedConfig):
    """The configuration of Gemma 3, text."""


class NeuronGemma3Model(NeuronBaseModel):
    """The model of Gemma 3, text."""

    family = GEMMA3


class NeuronGemma3ForCausalLM(NeuronBaseForCausalLM):
    """Gemma 3, text."""

    _STATE_DICT_MODEL_PREFIX = f"{GEMMA3.prefix}."
    _model_cls = NeuronGemma3Model

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return Gemma3InferenceConfig


class GPT2InferenceConfig(_SizedConfig):
    """The configuration of GPT-2."""


class NeuronGPT2Model(NeuronBaseModel):
    """The model of GPT-2."""

    family = GPT2


class NeuronGPT2ForCausalLM(NeuronBaseForCausalLM):
    """GPT-2."""

    _STATE_DICT_MODEL_PREFIX = f"{GPT2.prefix}."
    _model_cls = NeuronGPT2Model

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return GPT2InferenceConfig


class OPTInferenceConfig(_SizedConfig):
    """The configuration of OPT."""


class NeuronOPTModel(NeuronBaseModel):
    """The model of OPT."""

    family = OPT


class NeuronOPTForCausalLM(NeuronBaseForCausalLM):
    """OPT."""

    _STATE_DICT_MODEL_PREFIX = f"{OPT.prefix}."
    _model_cls = NeuronOPTModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return OPTInferenceConfig


class BloomInferenceConfig(_SizedConfig):
    """The configuration of BLOOM."""


class NeuronBloomModel(NeuronBaseModel):
    """The model of BLOOM."""

    family = BLOOM


class NeuronBloomForCausalLM(NeuronBaseForCausalLM):
    """BLOOM."""

    _STATE_DICT_MODEL_PREFIX = f"{BLOOM.prefix}."
    _model_cls = NeuronBloomModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return BloomInferenceConfig


class GPTJInferenceConfig(_SizedConfig):
    """The configuration of GPT-J."""


class NeuronGPTJModel(NeuronBaseModel):
    """The model of GPT-J."""

    family = GPTJ


class NeuronGPTJForCausalLM(NeuronBaseForCausalLM):
    """GPT-J."""

    _STATE_DICT_MODEL_PREFIX = f"{GPTJ.prefix}."
    _model_cls = NeuronGPTJModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return GPTJInferenceConfig


class GPTNeoXInferenceConfig(_SizedConfig):
    """The configuration of GPT-NeoX."""


class NeuronGPTNeoXModel(NeuronBaseModel):
    """The model of GPT-NeoX."""

    family = GPT_NEOX


class NeuronGPTNeoXForCausalLM(NeuronBaseForCausalLM):
    """GPT-NeoX."""

    _STATE_DICT_MODEL_PREFIX = f"{GPT_NEOX.prefix}."
    _model_cls = NeuronGPTNeoXModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return GPTNeoXInferenceConfig


class MixtralInferenceConfig(_ExpertsConfig):
    """The configuration of Mixtral."""


class NeuronMixtralModel(NeuronBaseModel):
    """The model of Mixtral."""

    family = MIXTRAL


class NeuronMixtralForCausalLM(NeuronBaseForCausalLM):
    """Mixtral."""

    _STATE_DICT_MODEL_PREFIX = f"{MIXTRAL.prefix}."
    _model_cls = NeuronMixtralModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return MixtralInferenceConfig


class Qwen2MoeInferenceConfig(_ExpertsConfig):
    """The configuration of Qwen2-MoE."""


class NeuronQwen2MoeModel(NeuronBaseModel):
    """The model of Qwen2-MoE."""

    family = QWEN2_MOE


class NeuronQwen2MoeForCausalLM(NeuronBaseForCausalLM):
    """Qwen2-MoE."""

    _STATE_DICT_MODEL_PREFIX = f"{QWEN2_MOE.prefix}."
    _model_cls = NeuronQwen2MoeModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return Qwen2MoeInferenceConfig


class Qwen3MoeInferenceConfig(_ExpertsConfig):
    """The configuration of Qwen3-MoE."""


class NeuronQwen3MoeModel(NeuronBaseModel):
    """The model of Qwen3-MoE."""

    family = QWEN3_MOE


class NeuronQwen3MoeForCausalLM(NeuronBaseForCausalLM):
    """Qwen3-MoE."""

    _STATE_DICT_MODEL_PREFIX = f"{QWEN3_MOE.prefix}."
    _model_cls = NeuronQwen3MoeModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of the configuration."""
        return Qwen3MoeInferenceConfig


# Application class by Hugging Face's model_type.
CAUSAL_LM: Mapping[str, type[NeuronBaseForCausalLM]] = {
    LLAMA.model_type: NeuronLlamaForCausalLM,
    MISTRAL.model_type: NeuronMistralForCausalLM,
    QWEN2.model_type: NeuronQwen2ForCausalLM,
    QWEN3.model_type: NeuronQwen3ForCausalLM,
    GEMMA3.model_type: NeuronGemma3ForCausalLM,
    GPT2.model_type: NeuronGPT2ForCausalLM,
    OPT.model_type: NeuronOPTForCausalLM,
    BLOOM.model_type: NeuronBloomForCausalLM,
    GPTJ.model_type: NeuronGPTJForCausalLM,
    GPT_NEOX.model_type: NeuronGPTNeoXForCausalLM,
    MIXTRAL.model_type: NeuronMixtralForCausalLM,
    QWEN2_MOE.model_type: NeuronQwen2MoeForCausalLM,
    QWEN3_MOE.model_type: NeuronQwen3MoeForCausalLM,
}
