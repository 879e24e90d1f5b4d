"""The names of NxD Inference, each imported when it is looked up.

docs/aws-compatibility.md maps AWS's import paths to them::

    from graphgen.runtime.aws.nxdi import NeuronConfig, NeuronLlamaForCausalLM
"""

from __future__ import annotations

from importlib import import_module

_HERE = "graphgen.runtime.aws"
_FAMILIES = (
    "Llama",
    "Mistral",
    "Qwen2",
    "Qwen3",
    "Gemma3",
    "GPT2",
    "OPT",
    "Bloom",
    "GPTJ",
    "GPTNeoX",
)
# Module under _HERE, and its public names.
_MODULES = {
    "config.neuron_config": (
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
    "config.expert_config": (
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
    "config.inference_config": ("InferenceConfig",),
    "config.pretrained_config": ("load_pretrained_config",),
    "application.application_base": ("NeuronApplicationBase",),
    "application.base_model": ("ModelWrapper", "NeuronBaseModel"),
    "application.causal_lm": ("CausalLMOutput", "NeuronBaseForCausalLM"),
    "application.model_classes": tuple(
        name
        for family in _FAMILIES
        for name in (
            f"{family}InferenceConfig",
            f"Neuron{family}ForCausalLM",
            f"Neuron{family}Model",
        )
    ),
    "generation.hf_adapter": ("HuggingFaceGenerationAdapter",),
    "generation.generate_outputs": ("get_generate_outputs",),
    "measurement.accuracy_checks": (
        "LogitMatchingValidationError",
        "check_accuracy",
        "check_accuracy_logits",
        "check_accuracy_logits_v2",
        "generate_expected_logits",
    ),
    "measurement.benchmark_sampling": ("benchmark_sampling",),
    "measurement.input_snapshots": ("InputCaptureHook",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute '{name}'")
    return getattr(import_module(f"{_HERE}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
