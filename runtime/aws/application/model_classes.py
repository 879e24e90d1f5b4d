"""The application class of each model family."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws.application.families.llama_like import (
    NeuronGlm4ForCausalLM,
    NeuronGlmForCausalLM,
    NeuronGraniteForCausalLM,
    NeuronLlamaForCausalLM,
    NeuronMistralForCausalLM,
    NeuronOlmo2ForCausalLM,
    NeuronPhi3ForCausalLM,
    NeuronQwen2ForCausalLM,
    NeuronQwen3ForCausalLM,
    NeuronSmolLM3ForCausalLM,
)
from graphgen.runtime.aws.application.families.mixtures import (
    NeuronDbrxForCausalLM,
    NeuronDeepseekV2ForCausalLM,
    NeuronDeepseekV3ForCausalLM,
    NeuronGptOssForCausalLM,
    NeuronGraniteMoeForCausalLM,
    NeuronLlama4ForCausalLM,
    NeuronMixtralForCausalLM,
    NeuronQwen2MoeForCausalLM,
    NeuronQwen3MoeForCausalLM,
)
from graphgen.runtime.aws.application.families.other_decoders import (
    NeuronBloomForCausalLM,
    NeuronFalconForCausalLM,
    NeuronGemma2ForCausalLM,
    NeuronGemma3ForCausalLM,
    NeuronGPT2ForCausalLM,
    NeuronGPTJForCausalLM,
    NeuronGPTNeoXForCausalLM,
    NeuronOPTForCausalLM,
    NeuronStableLmForCausalLM,
)

_ALL: tuple[type[NeuronBaseForCausalLM], ...] = (
    NeuronLlamaForCausalLM,
    NeuronMistralForCausalLM,
    NeuronQwen2ForCausalLM,
    NeuronQwen3ForCausalLM,
    NeuronOlmo2ForCausalLM,
    NeuronPhi3ForCausalLM,
    NeuronSmolLM3ForCausalLM,
    NeuronGraniteForCausalLM,
    NeuronGlmForCausalLM,
    NeuronGlm4ForCausalLM,
    NeuronMixtralForCausalLM,
    NeuronQwen2MoeForCausalLM,
    NeuronQwen3MoeForCausalLM,
    NeuronGptOssForCausalLM,
    NeuronDeepseekV2ForCausalLM,
    NeuronDeepseekV3ForCausalLM,
    NeuronLlama4ForCausalLM,
    NeuronDbrxForCausalLM,
    NeuronGraniteMoeForCausalLM,
    NeuronGemma2ForCausalLM,
    NeuronGemma3ForCausalLM,
    NeuronGPT2ForCausalLM,
    NeuronOPTForCausalLM,
    NeuronBloomForCausalLM,
    NeuronGPTJForCausalLM,
    NeuronGPTNeoXForCausalLM,
    NeuronStableLmForCausalLM,
    NeuronFalconForCausalLM,
)
# By Hugging Face's model_type.
CAUSAL_LM: Mapping[str, type[NeuronBaseForCausalLM]] = {kind.model_type(): kind for kind in _ALL}
