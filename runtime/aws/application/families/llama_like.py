"""The application classes of Llama-like decoders, with AWS's names."""

from __future__ import annotations

from graphgen.models.families.llama_like.glm import GLM, GLM4
from graphgen.models.families.llama_like.granite import GRANITE
from graphgen.models.families.llama_like.llama import LLAMA
from graphgen.models.families.llama_like.mistral import MISTRAL
from graphgen.models.families.llama_like.olmo2 import OLMO2
from graphgen.models.families.llama_like.phi3 import PHI3
from graphgen.models.families.llama_like.qwen import QWEN2, QWEN3
from graphgen.models.families.llama_like.smollm3 import SMOLLM3
from graphgen.runtime.aws.application.base_model import NeuronBaseModel
from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws.application.families.sized_config import SizedConfig


class LlamaInferenceConfig(SizedConfig):
    """The configuration of Llama and models with the same mathematics, such as SmolLM2."""


class NeuronLlamaModel(NeuronBaseModel):
    """The model of Llama and models with the same mathematics, such as SmolLM2."""

    family = LLAMA


class NeuronLlamaForCausalLM(NeuronBaseForCausalLM):
    """Llama and models with the same mathematics, such as SmolLM2."""

    _STATE_DICT_MODEL_PREFIX = f"{LLAMA.prefix}."
    _model_cls = NeuronLlamaModel
    _config_cls = LlamaInferenceConfig


class MistralInferenceConfig(SizedConfig):
    """The configuration of Mistral."""


class NeuronMistralModel(NeuronBaseModel):
    """The model of Mistral."""

    family = MISTRAL


class NeuronMistralForCausalLM(NeuronBaseForCausalLM):
    """Mistral."""

    _STATE_DICT_MODEL_PREFIX = f"{MISTRAL.prefix}."
    _model_cls = NeuronMistralModel
    _config_cls = MistralInferenceConfig


class Qwen2InferenceConfig(SizedConfig):
    """The configuration of Qwen2 and Qwen2.5."""


class NeuronQwen2Model(NeuronBaseModel):
    """The model of Qwen2 and Qwen2.5."""

    family = QWEN2


class NeuronQwen2ForCausalLM(NeuronBaseForCausalLM):
    """Qwen2 and Qwen2.5."""

    _STATE_DICT_MODEL_PREFIX = f"{QWEN2.prefix}."
    _model_cls = NeuronQwen2Model
    _config_cls = Qwen2InferenceConfig


class Qwen3InferenceConfig(SizedConfig):
    """The configuration of Qwen3."""


class NeuronQwen3Model(NeuronBaseModel):
    """The model of Qwen3."""

    family = QWEN3


class NeuronQwen3ForCausalLM(NeuronBaseForCausalLM):
    """Qwen3."""

    _STATE_DICT_MODEL_PREFIX = f"{QWEN3.prefix}."
    _model_cls = NeuronQwen3Model
    _config_cls = Qwen3InferenceConfig


class Olmo2InferenceConfig(SizedConfig):
    """The configuration of OLMo-2."""


class NeuronOlmo2Model(NeuronBaseModel):
    """The model of OLMo-2."""

    family = OLMO2


class NeuronOlmo2ForCausalLM(NeuronBaseForCausalLM):
    """OLMo-2."""

    _STATE_DICT_MODEL_PREFIX = f"{OLMO2.prefix}."
    _model_cls = NeuronOlmo2Model
    _config_cls = Olmo2InferenceConfig


class Phi3InferenceConfig(SizedConfig):
    """The configuration of Phi-3 and Phi-4."""


class NeuronPhi3Model(NeuronBaseModel):
    """The model of Phi-3 and Phi-4."""

    family = PHI3


class NeuronPhi3ForCausalLM(NeuronBaseForCausalLM):
    """Phi-3 and Phi-4."""

    _STATE_DICT_MODEL_PREFIX = f"{PHI3.prefix}."
    _model_cls = NeuronPhi3Model
    _config_cls = Phi3InferenceConfig


class SmolLM3InferenceConfig(SizedConfig):
    """The configuration of SmolLM3."""


class NeuronSmolLM3Model(NeuronBaseModel):
    """The model of SmolLM3."""

    family = SMOLLM3


class NeuronSmolLM3ForCausalLM(NeuronBaseForCausalLM):
    """SmolLM3."""

    _STATE_DICT_MODEL_PREFIX = f"{SMOLLM3.prefix}."
    _model_cls = NeuronSmolLM3Model
    _config_cls = SmolLM3InferenceConfig


class GraniteInferenceConfig(SizedConfig):
    """The configuration of Granite."""


class NeuronGraniteModel(NeuronBaseModel):
    """The model of Granite."""

    family = GRANITE


class NeuronGraniteForCausalLM(NeuronBaseForCausalLM):
    """Granite."""

    _STATE_DICT_MODEL_PREFIX = f"{GRANITE.prefix}."
    _model_cls = NeuronGraniteModel
    _config_cls = GraniteInferenceConfig


class GlmInferenceConfig(SizedConfig):
    """The configuration of GLM."""


class NeuronGlmModel(NeuronBaseModel):
    """The model of GLM."""

    family = GLM


class NeuronGlmForCausalLM(NeuronBaseForCausalLM):
    """GLM."""

    _STATE_DICT_MODEL_PREFIX = f"{GLM.prefix}."
    _model_cls = NeuronGlmModel
    _config_cls = GlmInferenceConfig


class Glm4InferenceConfig(SizedConfig):
    """The configuration of GLM-4."""


class NeuronGlm4Model(NeuronBaseModel):
    """The model of GLM-4."""

    family = GLM4


class NeuronGlm4ForCausalLM(NeuronBaseForCausalLM):
    """GLM-4."""

    _STATE_DICT_MODEL_PREFIX = f"{GLM4.prefix}."
    _model_cls = NeuronGlm4Model
    _config_cls = Glm4InferenceConfig
