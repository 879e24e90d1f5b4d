"""The names of transformers-neuronx, each imported when it is looked up.

docs/aws-compatibility.md maps AWS's import paths to them::

    from graphgen.runtime.aws.tnx import NeuronAutoModelForCausalLM, NeuronConfig
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# Type checkers and editors call no __getattr__: the names of the table below, for them.
# ruff: noqa: F401
# pyright: reportUnusedImport=false
if TYPE_CHECKING:
    from graphgen.runtime.aws_config.tnx_config import (
        GQA,
        BlkSparseAttnConfig,
        ContinuousBatchingConfig,
        KVCacheQuantizationConfig,
        SlidingWindowAttnConfig,
        SparseAttnConfig,
    )
    from graphgen.runtime.aws_config.tnx_config import TnxGenerationConfig as GenerationConfig
    from graphgen.runtime.aws_config.tnx_config import TnxNeuronConfig as NeuronConfig
    from graphgen.runtime.aws_config.tnx_config import TnxQuantizationConfig as QuantizationConfig
    from graphgen.runtime.aws_tnx.tnx_adapter import HuggingFaceGenerationModelAdapter
    from graphgen.runtime.aws_tnx.tnx_families import (
        BloomForSampling,
        GPT2ForSampling,
        GPT2ForSamplingWithContextBroadcasting,
        GPTJForSampling,
        GPTNeoXForSampling,
        LlamaForSampling,
        MistralForSampling,
        MixtralForSampling,
        NeuronAutoModelForCausalLM,
        OPTForSampling,
        Qwen2ForSampling,
        Qwen3ForSampling,
    )
    from graphgen.runtime.aws_tnx.tnx_model import save_pretrained_split
    from graphgen.runtime.aws_tnx.tnx_sample import StoppingCriteria, StoppingCriteriaList
    from graphgen.runtime.aws_tnx.tnx_speculation import SpeculativeGenerator

_HERE = "graphgen.runtime"
_MODELS = "aws_tnx.tnx_families"
_CONFIGS = "aws_config.tnx_config"
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
        "aws_tnx.tnx_adapter",
        "HuggingFaceGenerationModelAdapter",
    ),
    "SpeculativeGenerator": ("aws_tnx.tnx_speculation", "SpeculativeGenerator"),
    "StoppingCriteria": ("aws_tnx.tnx_sample", "StoppingCriteria"),
    "StoppingCriteriaList": ("aws_tnx.tnx_sample", "StoppingCriteriaList"),
    "save_pretrained_split": ("aws_tnx.tnx_model", "save_pretrained_split"),
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute '{name}'")
    module, inside = _HOMES[name]
    return getattr(import_module(f"{_HERE}.{module}"), inside)


def __dir__() -> list[str]:
    return __all__
