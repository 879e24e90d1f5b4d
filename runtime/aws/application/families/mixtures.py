"""The application classes of mixtures of experts, with AWS's names."""

from __future__ import annotations

from graphgen.models.families.mixtures.dbrx import DBRX
from graphgen.models.families.mixtures.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from graphgen.models.families.mixtures.gpt_oss import GPT_OSS
from graphgen.models.families.mixtures.granite_moe import GRANITE_MOE
from graphgen.models.families.mixtures.llama4 import LLAMA4
from graphgen.models.families.mixtures.mixtral import MIXTRAL
from graphgen.models.families.mixtures.qwen_moe import QWEN2_MOE, QWEN3_MOE
from graphgen.runtime.aws.application.base_model import NeuronBaseModel
from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws.application.families.sized_config import ExpertsConfig


class MixtralInferenceConfig(ExpertsConfig):
    """The configuration of Mixtral."""


class NeuronMixtralModel(NeuronBaseModel):
    """The model of Mixtral."""

    family = MIXTRAL


class NeuronMixtralForCausalLM(NeuronBaseForCausalLM):
    """Mixtral."""

    _STATE_DICT_MODEL_PREFIX = f"{MIXTRAL.prefix}."
    _model_cls = NeuronMixtralModel
    _config_cls = MixtralInferenceConfig


class Qwen2MoeInferenceConfig(ExpertsConfig):
    """The configuration of Qwen2-MoE."""


class NeuronQwen2MoeModel(NeuronBaseModel):
    """The model of Qwen2-MoE."""

    family = QWEN2_MOE


class NeuronQwen2MoeForCausalLM(NeuronBaseForCausalLM):
    """Qwen2-MoE."""

    _STATE_DICT_MODEL_PREFIX = f"{QWEN2_MOE.prefix}."
    _model_cls = NeuronQwen2MoeModel
    _config_cls = Qwen2MoeInferenceConfig


class Qwen3MoeInferenceConfig(ExpertsConfig):
    """The configuration of Qwen3-MoE."""


class NeuronQwen3MoeModel(NeuronBaseModel):
    """The model of Qwen3-MoE."""

    family = QWEN3_MOE


class NeuronQwen3MoeForCausalLM(NeuronBaseForCausalLM):
    """Qwen3-MoE."""

    _STATE_DICT_MODEL_PREFIX = f"{QWEN3_MOE.prefix}."
    _model_cls = NeuronQwen3MoeModel
    _config_cls = Qwen3MoeInferenceConfig


class GptOssInferenceConfig(ExpertsConfig):
    """The configuration of GPT-OSS."""


class NeuronGptOssModel(NeuronBaseModel):
    """The model of GPT-OSS."""

    family = GPT_OSS


class NeuronGptOssForCausalLM(NeuronBaseForCausalLM):
    """GPT-OSS."""

    _STATE_DICT_MODEL_PREFIX = f"{GPT_OSS.prefix}."
    _model_cls = NeuronGptOssModel
    _config_cls = GptOssInferenceConfig


class DeepseekV2InferenceConfig(ExpertsConfig):
    """The configuration of DeepSeek-V2."""


class NeuronDeepseekV2Model(NeuronBaseModel):
    """The model of DeepSeek-V2."""

    family = DEEPSEEK_V2


class NeuronDeepseekV2ForCausalLM(NeuronBaseForCausalLM):
    """DeepSeek-V2."""

    _STATE_DICT_MODEL_PREFIX = f"{DEEPSEEK_V2.prefix}."
    _model_cls = NeuronDeepseekV2Model
    _config_cls = DeepseekV2InferenceConfig


class DeepseekV3InferenceConfig(ExpertsConfig):
    """The configuration of DeepSeek-V3."""


class NeuronDeepseekV3Model(NeuronBaseModel):
    """The model of DeepSeek-V3."""

    family = DEEPSEEK_V3


class NeuronDeepseekV3ForCausalLM(NeuronBaseForCausalLM):
    """DeepSeek-V3."""

    _STATE_DICT_MODEL_PREFIX = f"{DEEPSEEK_V3.prefix}."
    _model_cls = NeuronDeepseekV3Model
    _config_cls = DeepseekV3InferenceConfig


class Llama4InferenceConfig(ExpertsConfig):
    """The configuration of Llama 4 (text)."""


class NeuronLlama4Model(NeuronBaseModel):
    """The model of Llama 4 (text)."""

    family = LLAMA4


class NeuronLlama4ForCausalLM(NeuronBaseForCausalLM):
    """Llama 4 (text)."""

    _STATE_DICT_MODEL_PREFIX = f"{LLAMA4.prefix}."
    _model_cls = NeuronLlama4Model
    _config_cls = Llama4InferenceConfig


class DbrxInferenceConfig(ExpertsConfig):
    """The configuration of DBRX."""


class NeuronDbrxModel(NeuronBaseModel):
    """The model of DBRX."""

    family = DBRX


class NeuronDbrxForCausalLM(NeuronBaseForCausalLM):
    """DBRX."""

    _STATE_DICT_MODEL_PREFIX = f"{DBRX.prefix}."
    _model_cls = NeuronDbrxModel
    _config_cls = DbrxInferenceConfig


class GraniteMoeInferenceConfig(ExpertsConfig):
    """The configuration of GraniteMoe."""


class NeuronGraniteMoeModel(NeuronBaseModel):
    """The model of GraniteMoe."""

    family = GRANITE_MOE


class NeuronGraniteMoeForCausalLM(NeuronBaseForCausalLM):
    """GraniteMoe."""

    _STATE_DICT_MODEL_PREFIX = f"{GRANITE_MOE.prefix}."
    _model_cls = NeuronGraniteMoeModel
    _config_cls = GraniteMoeInferenceConfig
