"""The application class of each model family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphgen.models.bloom import BLOOM
from graphgen.models.dbrx import DBRX
from graphgen.models.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from graphgen.models.falcon import FALCON
from graphgen.models.gemma2 import GEMMA2
from graphgen.models.gemma3 import GEMMA3
from graphgen.models.glm import GLM, GLM4
from graphgen.models.gpt2 import GPT2
from graphgen.models.gpt_neox import GPT_NEOX
from graphgen.models.gpt_oss import GPT_OSS
from graphgen.models.gptj import GPTJ
from graphgen.models.granite import GRANITE
from graphgen.models.granite_moe import GRANITE_MOE
from graphgen.models.llama import LLAMA
from graphgen.models.llama4 import LLAMA4
from graphgen.models.mistral import MISTRAL
from graphgen.models.mixtral import MIXTRAL
from graphgen.models.olmo2 import OLMO2
from graphgen.models.opt import OPT
from graphgen.models.phi3 import PHI3
from graphgen.models.qwen import QWEN2, QWEN3
from graphgen.models.qwen_moe import QWEN2_MOE, QWEN3_MOE
from graphgen.models.smollm3 import SMOLLM3
from graphgen.models.stablelm import STABLELM
from graphgen.runtime.aws_config.expert_config import MoENeuronConfig
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi import model_classes as llama_like
from graphgen.runtime.aws_nxdi import model_classes as mixtures
from graphgen.runtime.aws_nxdi import model_classes as other_decoders
from graphgen.runtime.aws_nxdi.base_model import NeuronBaseModel
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM

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


class Gemma2InferenceConfig(SizedConfig):
    """The configuration of Gemma 2."""


class NeuronGemma2Model(NeuronBaseModel):
    """The model of Gemma 2."""

    family = GEMMA2


class NeuronGemma2ForCausalLM(NeuronBaseForCausalLM):
    """Gemma 2."""

    _STATE_DICT_MODEL_PREFIX = f"{GEMMA2.prefix}."
    _model_cls = NeuronGemma2Model
    _config_cls = Gemma2InferenceConfig


class Gemma3InferenceConfig(SizedConfig):
    """The configuration of Gemma 3, text."""


class NeuronGemma3Model(NeuronBaseModel):
    """The model of Gemma 3, text."""

    family = GEMMA3


class NeuronGemma3ForCausalLM(NeuronBaseForCausalLM):
    """Gemma 3, text."""

    _STATE_DICT_MODEL_PREFIX = f"{GEMMA3.prefix}."
    _model_cls = NeuronGemma3Model
    _config_cls = Gemma3InferenceConfig


class GPT2InferenceConfig(SizedConfig):
    """The configuration of GPT-2."""


class NeuronGPT2Model(NeuronBaseModel):
    """The model of GPT-2."""

    family = GPT2


class NeuronGPT2ForCausalLM(NeuronBaseForCausalLM):
    """GPT-2."""

    _STATE_DICT_MODEL_PREFIX = f"{GPT2.prefix}."
    _model_cls = NeuronGPT2Model
    _config_cls = GPT2InferenceConfig


class OPTInferenceConfig(SizedConfig):
    """The configuration of OPT."""


class NeuronOPTModel(NeuronBaseModel):
    """The model of OPT."""

    family = OPT


class NeuronOPTForCausalLM(NeuronBaseForCausalLM):
    """OPT."""

    _STATE_DICT_MODEL_PREFIX = f"{OPT.prefix}."
    _model_cls = NeuronOPTModel
    _config_cls = OPTInferenceConfig


class BloomInferenceConfig(SizedConfig):
    """The configuration of BLOOM."""


class NeuronBloomModel(NeuronBaseModel):
    """The model of BLOOM."""

    family = BLOOM


class NeuronBloomForCausalLM(NeuronBaseForCausalLM):
    """BLOOM."""

    _STATE_DICT_MODEL_PREFIX = f"{BLOOM.prefix}."
    _model_cls = NeuronBloomModel
    _config_cls = BloomInferenceConfig


class GPTJInferenceConfig(SizedConfig):
    """The configuration of GPT-J."""


class NeuronGPTJModel(NeuronBaseModel):
    """The model of GPT-J."""

    family = GPTJ


class NeuronGPTJForCausalLM(NeuronBaseForCausalLM):
    """GPT-J."""

    _STATE_DICT_MODEL_PREFIX = f"{GPTJ.prefix}."
    _model_cls = NeuronGPTJModel
    _config_cls = GPTJInferenceConfig


class GPTNeoXInferenceConfig(SizedConfig):
    """The configuration of GPT-NeoX."""


class NeuronGPTNeoXModel(NeuronBaseModel):
    """The model of GPT-NeoX."""

    family = GPT_NEOX


class NeuronGPTNeoXForCausalLM(NeuronBaseForCausalLM):
    """GPT-NeoX."""

    _STATE_DICT_MODEL_PREFIX = f"{GPT_NEOX.prefix}."
    _model_cls = NeuronGPTNeoXModel
    _config_cls = GPTNeoXInferenceConfig


class StableLmInferenceConfig(SizedConfig):
    """The configuration of StableLM."""


class NeuronStableLmModel(NeuronBaseModel):
    """The model of StableLM."""

    family = STABLELM


class NeuronStableLmForCausalLM(NeuronBaseForCausalLM):
    """StableLM."""

    _STATE_DICT_MODEL_PREFIX = f"{STABLELM.prefix}."
    _model_cls = NeuronStableLmModel
    _config_cls = StableLmInferenceConfig


class FalconInferenceConfig(SizedConfig):
    """The configuration of Falcon."""


class NeuronFalconModel(NeuronBaseModel):
    """The model of Falcon."""

    family = FALCON


class NeuronFalconForCausalLM(NeuronBaseForCausalLM):
    """Falcon."""

    _STATE_DICT_MODEL_PREFIX = f"{FALCON.prefix}."
    _model_cls = NeuronFalconModel
    _config_cls = FalconInferenceConfig


def _defined() -> Iterator[type[NeuronBaseForCausalLM]]:
    """The classes that the modules of families define; a user's subclasses are not among them."""
    for module in (llama_like, mixtures, other_decoders):
        for found in vars(module).values():
            known = isinstance(found, type) and issubclass(found, NeuronBaseForCausalLM)
            if known and found is not NeuronBaseForCausalLM:
                yield found


# By Hugging Face's model_type.
CAUSAL_LM: Mapping[str, type[NeuronBaseForCausalLM]] = {cls.model_type(): cls for cls in _defined()}
