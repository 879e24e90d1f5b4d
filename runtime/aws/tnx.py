"""The names of transformers-neuronx, each imported when it is looked up.

docs/aws-compatibility.md maps AWS's import paths to them::

    from graphgen.runtime.aws.tnx import NeuronAutoModelForCausalLM, NeuronConfig
"""

from __future__ import annotations

from importlib import import_module

_HERE = "graphgen.runtime.aws"
_MODELS = "generation.tnx_families"
_CONFIGS = "config.tnx_config"
# Module under _HERE and name there, by transformers-neuronx's name.
_HOMES = {
    **{
        name: (_MODELS, name)
        for name in (
            "BloomForSampling",
            "GPT2ForSampling",
            "GPT2ForSamplingWithContextBroadcasting",
            "GPTJForSampling",
            "GPTNeoXForSampling",
            "LlamaForSampling",
            "MistralForSampling",
            "MixtralForSampling",
            "NeuronAutoModelForCausalLM",
            "OPTForSampling",
            "Qwen2ForSampling",
            "Qwen3ForSampling",
            "SpeculativeGenerator",
        )
    },
    **{
        name: (_CONFIGS, name)
        for name in (
            "BlkSparseAttnConfig",
            "ContinuousBatchingConfig",
            "GQA",
            "KVCacheQuantizationConfig",
            "SlidingWindowAttnConfig",
            "SparseAttnConfig",
        )
    },
    "GenerationConfig": (_CONFIGS, "TnxGenerationConfig"),
    "NeuronConfig": (_CONFIGS, "TnxNeuronConfig"),
    "QuantizationConfig": (_CONFIGS, "TnxQuantizationConfig"),
    "HuggingFaceGenerationModelAdapter": (
        "generation.tnx_adapter",
        "HuggingFaceGenerationModelAdapter",
    ),
    "StoppingCriteria": ("generation.tnx_stopping", "StoppingCriteria"),
    "StoppingCriteriaList": ("generation.tnx_stopping", "StoppingCriteriaList"),
    "save_pretrained_split": ("generation.tnx_model", "save_pretrained_split"),
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute '{name}'")
    module, inside = _HOMES[name]
    return getattr(import_module(f"{_HERE}.{module}"), inside)


def __dir__() -> list[str]:
    return __all__
