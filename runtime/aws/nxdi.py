"""The names of NxD Inference, each imported when it is looked up.

docs/aws-compatibility.md maps AWS's import paths to them::

    from graphgen.runtime.aws.nxdi import NeuronConfig, NeuronLlamaForCausalLM
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# Type checkers and editors call no __getattr__: the names of the table below, for them.
# ruff: noqa: F401
# pyright: reportUnusedImport=false
if TYPE_CHECKING:
    from graphgen.runtime.aws_config.expert_config import (
        BlockShardStrategy,
        BlockwiseMatmulConfig,
        DbrxNeuronConfig,
        GLUType,
        HybridShardingConfig,
        MixtralNeuronConfig,
        MoEFusedTKGConfig,
        MoENeuronConfig,
        Qwen3MoeNeuronConfig,
        RoutedExpertsMLPOpsConfig,
        RouterConfig,
    )
    from graphgen.runtime.aws_config.inference_config import InferenceConfig, load_pretrained_config
    from graphgen.runtime.aws_config.neuron_config import (
        ChunkedPrefillConfig,
        FusedSpecNeuronConfig,
        Gemma3NeuronConfig,
        KVQuantizationConfig,
        LlamaNeuronConfig,
        LoraServingConfig,
        MistralNeuronConfig,
        NeuronConfig,
        OnDeviceSamplingConfig,
        Qwen2NeuronConfig,
        Qwen3NeuronConfig,
    )
    from graphgen.runtime.aws_nxdi.accuracy_checks import (
        LogitMatchingValidationError,
        check_accuracy,
        check_accuracy_logits,
        check_accuracy_logits_v2,
        generate_expected_logits,
    )
    from graphgen.runtime.aws_nxdi.application_base import NeuronApplicationBase
    from graphgen.runtime.aws_nxdi.base_model import ModelWrapper, NeuronBaseModel
    from graphgen.runtime.aws_nxdi.benchmark_sampling import benchmark_sampling
    from graphgen.runtime.aws_nxdi.causal_lm import CausalLMOutput, NeuronBaseForCausalLM
    from graphgen.runtime.aws_nxdi.generate_outputs import get_generate_outputs
    from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
    from graphgen.runtime.aws_nxdi.input_snapshots import InputCaptureHook
    from graphgen.runtime.aws_nxdi.model_classes import (
        BloomInferenceConfig,
        DbrxInferenceConfig,
        DeepseekV2InferenceConfig,
        DeepseekV3InferenceConfig,
        FalconInferenceConfig,
        Gemma2InferenceConfig,
        Gemma3InferenceConfig,
        Glm4InferenceConfig,
        GlmInferenceConfig,
        GPT2InferenceConfig,
        GPTJInferenceConfig,
        GPTNeoXInferenceConfig,
        GptOssInferenceConfig,
        GraniteInferenceConfig,
        GraniteMoeInferenceConfig,
        Llama4InferenceConfig,
        LlamaInferenceConfig,
        MistralInferenceConfig,
        MixtralInferenceConfig,
        NeuronBloomForCausalLM,
        NeuronBloomModel,
        NeuronDbrxForCausalLM,
        NeuronDbrxModel,
        NeuronDeepseekV2ForCausalLM,
        NeuronDeepseekV2Model,
        NeuronDeepseekV3ForCausalLM,
        NeuronDeepseekV3Model,
        NeuronFalconForCausalLM,
        NeuronFalconModel,
        NeuronGemma2ForCausalLM,
        NeuronGemma2Model,
        NeuronGemma3ForCausalLM,
        NeuronGemma3Model,
        NeuronGlm4ForCausalLM,
        NeuronGlm4Model,
        NeuronGlmForCausalLM,
        NeuronGlmModel,
        NeuronGPT2ForCausalLM,
        NeuronGPT2Model,
        NeuronGPTJForCausalLM,
        NeuronGPTJModel,
        NeuronGPTNeoXForCausalLM,
        NeuronGPTNeoXModel,
        NeuronGptOssForCausalLM,
        NeuronGptOssModel,
        NeuronGraniteForCausalLM,
        NeuronGraniteModel,
        NeuronGraniteMoeForCausalLM,
        NeuronGraniteMoeModel,
        NeuronLlama4ForCausalLM,
        NeuronLlama4Model,
        NeuronLlamaForCausalLM,
        NeuronLlamaModel,
        NeuronMistralForCausalLM,
        NeuronMistralModel,
        NeuronMixtralForCausalLM,
        NeuronMixtralModel,
        NeuronOlmo2ForCausalLM,
        NeuronOlmo2Model,
        NeuronOPTForCausalLM,
        NeuronOPTModel,
        NeuronPhi3ForCausalLM,
        NeuronPhi3Model,
        NeuronQwen2ForCausalLM,
        NeuronQwen2Model,
        NeuronQwen2MoeForCausalLM,
        NeuronQwen2MoeModel,
        NeuronQwen3ForCausalLM,
        NeuronQwen3Model,
        NeuronQwen3MoeForCausalLM,
        NeuronQwen3MoeModel,
        NeuronSmolLM3ForCausalLM,
        NeuronSmolLM3Model,
        NeuronStableLmForCausalLM,
        NeuronStableLmModel,
        Olmo2InferenceConfig,
        OPTInferenceConfig,
        Phi3InferenceConfig,
        Qwen2InferenceConfig,
        Qwen2MoeInferenceConfig,
        Qwen3InferenceConfig,
        Qwen3MoeInferenceConfig,
        SmolLM3InferenceConfig,
        StableLmInferenceConfig,
    )
    from graphgen.runtime.aws_nxdi.moe_modules import (
        ExpertMLPs,
        MoE,
        RouterTopK,
        SharedExperts,
        initialize_moe_module,
    )
    from graphgen.runtime.aws_nxdi.row_sampling import prepare_sampling_params
    from graphgen.runtime.aws_nxdi.torch_layers import (
        ColumnParallelLinear,
        CustomRMSNorm,
        NeuronAttentionBase,
        ParallelEmbedding,
        RotaryEmbedding,
        RowParallelLinear,
        apply_rotary_pos_emb,
    )

_HERE = "graphgen.runtime"
# Names of families in those of their classes.
_LLAMA_LIKE = (
    *("Llama", "Mistral", "Qwen2", "Qwen3", "Olmo2", "Phi3"),
    *("SmolLM3", "Granite", "Glm", "Glm4"),
)
_MIXTURES = (
    *("Mixtral", "Qwen2Moe", "Qwen3Moe", "Dbrx"),
    *("GptOss", "GraniteMoe", "Llama4", "DeepseekV2", "DeepseekV3"),
)
_OTHERS = ("Gemma2", "Gemma3", "GPT2", "OPT", "Bloom", "GPTJ", "GPTNeoX", "StableLm", "Falcon")


def _classes(families: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the classes of each family: configuration, application and model."""
    forms = ("{}InferenceConfig", "Neuron{}ForCausalLM", "Neuron{}Model")
    return tuple([form.format(family) for family in families for form in forms])


# Module under _HERE, and its public names.
_MODULES = {
    "aws_config.neuron_config": (
        "ChunkedPrefillConfig",
        "FusedSpecNeuronConfig",
        "Gemma3NeuronConfig",
        "KVQuantizationConfig",
        "LlamaNeuronConfig",
        "LoraServingConfig",
        "MistralNeuronConfig",
        "NeuronConfig",
        "OnDeviceSamplingConfig",
        "Qwen2NeuronConfig",
        "Qwen3NeuronConfig",
    ),
    "aws_config.expert_config": (
        "BlockShardStrategy",
        "BlockwiseMatmulConfig",
        "DbrxNeuronConfig",
        "GLUType",
        "HybridShardingConfig",
        "MixtralNeuronConfig",
        "MoEFusedTKGConfig",
        "MoENeuronConfig",
        "Qwen3MoeNeuronConfig",
        "RoutedExpertsMLPOpsConfig",
        "RouterConfig",
    ),
    "aws_config.inference_config": ("InferenceConfig", "load_pretrained_config"),
    "aws_nxdi.application_base": ("NeuronApplicationBase",),
    "aws_nxdi.base_model": ("ModelWrapper", "NeuronBaseModel"),
    "aws_nxdi.row_sampling": ("prepare_sampling_params",),
    "aws_nxdi.torch_layers": (
        "ColumnParallelLinear",
        "CustomRMSNorm",
        "NeuronAttentionBase",
        "ParallelEmbedding",
        "RotaryEmbedding",
        "RowParallelLinear",
        "apply_rotary_pos_emb",
    ),
    "aws_nxdi.causal_lm": ("CausalLMOutput", "NeuronBaseForCausalLM"),
    "aws_nxdi.model_classes": _classes((*_LLAMA_LIKE, *_MIXTURES, *_OTHERS)),
    "aws_nxdi.moe_modules": (
        "ExpertMLPs",
        "MoE",
        "RouterTopK",
        "SharedExperts",
        "initialize_moe_module",
    ),
    "aws_nxdi.hf_adapter": ("HuggingFaceGenerationAdapter",),
    "aws_nxdi.generate_outputs": ("get_generate_outputs",),
    "aws_nxdi.accuracy_checks": (
        "LogitMatchingValidationError",
        "check_accuracy",
        "check_accuracy_logits",
        "check_accuracy_logits_v2",
        "generate_expected_logits",
    ),
    "aws_nxdi.benchmark_sampling": ("benchmark_sampling",),
    "aws_nxdi.input_snapshots": ("InputCaptureHook",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute '{name}'")
    return getattr(import_module(f"{_HERE}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
