"""The application classes of decoders that are not Llama-like, with AWS's names."""

from __future__ import annotations

from graphgen.models.families.bloom import BLOOM
from graphgen.models.families.falcon import FALCON
from graphgen.models.families.gemma2 import GEMMA2
from graphgen.models.families.gemma3 import GEMMA3
from graphgen.models.families.gpt2 import GPT2
from graphgen.models.families.gpt_neox import GPT_NEOX
from graphgen.models.families.gptj import GPTJ
from graphgen.models.families.opt import OPT
from graphgen.models.families.stablelm import STABLELM
from graphgen.runtime.aws.application.base_model import NeuronBaseModel
from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws.application.families.sized_config import SizedConfig


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
