"""Named configurations of published models, to build graphs without a checkpoint.

``sizes.json`` has those that a package states, with the page that it names, and the sources of
those that stand here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import cast

from graphgen.models.dense_shapes import DENSE_SHAPES
from graphgen.models.expert_shapes import EXPERT_SHAPES, QWEN, decoder

_LLAMA_3_1: dict[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": False,
}


# Fields that the small models of 3.2 change.
_LLAMA_3_2_1B: dict[str, object] = {
    "head_dim": 64,
    "tie_word_embeddings": True,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def _llama_3_1(hidden: int, intermediate: int, layers: int, heads: int) -> Mapping[str, object]:
    return MappingProxyType(
        _LLAMA_3_1
        | {
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
        }
    )


def _gpt2(hidden: int, layers: int, heads: int) -> Mapping[str, object]:
    return MappingProxyType(
        {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "activation_function": "gelu_new",
            "n_embd": hidden,
            "n_layer": layers,
            "n_head": heads,
            "n_positions": 1024,
            "n_ctx": 1024,
            "vocab_size": 50257,
            "layer_norm_epsilon": 1e-5,
        }
    )


def _opt(hidden: int, layers: int, heads: int) -> Mapping[str, object]:
    return MappingProxyType(
        {
            "model_type": "opt",
            "architectures": ["OPTForCausalLM"],
            "activation_function": "relu",
            "hidden_size": hidden,
            "ffn_dim": 4 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "word_embed_proj_dim": hidden,
            "max_position_embeddings": 2048,
            "vocab_size": 50272,
            "do_layer_norm_before": True,
        }
    )


def _bloom(hidden: int, layers: int, heads: int) -> Mapping[str, object]:
    return MappingProxyType(
        {
            "model_type": "bloom",
            "architectures": ["BloomForCausalLM"],
            "n_embed": hidden,
            "n_layer": layers,
            "num_attention_heads": heads,
            "seq_length": 2048,
            "vocab_size": 250880,
            "layer_norm_epsilon": 1e-5,
            "apply_residual_connection_post_layernorm": False,
        }
    )


_SIZES = cast(
    Mapping[str, Mapping[str, object]],
    json.loads(files("graphgen.models").joinpath("sizes.json").read_text("utf-8")),
)
PACKAGED = cast(Mapping[str, Mapping[str, object]], _SIZES["models"])
SHAPES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "llama-3.1-8b": _llama_3_1(4096, 14336, 32, 32),
        "llama-3.1-70b": _llama_3_1(8192, 28672, 80, 64),
        "llama-3.1-405b": _llama_3_1(16384, 53248, 126, 128),
        "llama-3.2-1b": MappingProxyType({**_llama_3_1(2048, 8192, 16, 32), **_LLAMA_3_2_1B}),
        "mistral-7b": decoder(
            "mistral",
            *(4096, 14336, 32, 32, 8),
            vocab_size=32000,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            max_position_embeddings=32768,
            sliding_window=4096,
        ),
        "qwen2-7b": decoder(
            "qwen2",
            *(3584, 18944, 28, 28, 4),
            vocab_size=152064,
            max_position_embeddings=131072,
            max_window_layers=28,
            **QWEN,
        ),
        "qwen3-8b": decoder(
            "qwen3",
            *(4096, 12288, 36, 32, 8),
            head_dim=128,
            vocab_size=151936,
            max_position_embeddings=40960,
            max_window_layers=36,
            **QWEN,
        ),
        **EXPERT_SHAPES,
        "gemma-3-1b": MappingProxyType(
            {
                "model_type": "gemma3_text",
                "architectures": ["Gemma3ForCausalLM"],
                "hidden_activation": "gelu_pytorch_tanh",
                "hidden_size": 1152,
                "intermediate_size": 6912,
                "num_hidden_layers": 26,
                "num_attention_heads": 4,
                "num_key_value_heads": 1,
                "head_dim": 256,
                "query_pre_attn_scalar": 256,
                "sliding_window": 512,
                "sliding_window_pattern": 6,
                "rope_theta": 1000000.0,
                "rope_local_base_freq": 10000.0,
                "max_position_embeddings": 32768,
                "vocab_size": 262144,
                "rms_norm_eps": 1e-6,
            }
        ),
        "gpt2": _gpt2(768, 12, 12),
        "gpt2-medium": _gpt2(1024, 24, 16),
        "gpt2-large": _gpt2(1280, 36, 20),
        "gpt2-xl": _gpt2(1600, 48, 25),
        "opt-125m": _opt(768, 12, 12),
        "opt-13b": _opt(5120, 40, 40),
        "opt-30b": _opt(7168, 48, 56),
        "gpt-j-6b": MappingProxyType(
            {
                "model_type": "gptj",
                "architectures": ["GPTJForCausalLM"],
                "activation_function": "gelu_new",
                "n_embd": 4096,
                "n_layer": 28,
                "n_head": 16,
                "rotary_dim": 64,
                "n_positions": 2048,
                "vocab_size": 50400,
                "layer_norm_epsilon": 1e-5,
            }
        ),
        "gpt-neox-20b": MappingProxyType(
            {
                "model_type": "gpt_neox",
                "architectures": ["GPTNeoXForCausalLM"],
                "hidden_act": "gelu",
                "hidden_size": 6144,
                "intermediate_size": 24576,
                "num_hidden_layers": 44,
                "num_attention_heads": 64,
                "rotary_pct": 0.25,
                "rotary_emb_base": 10000,
                "max_position_embeddings": 2048,
                "vocab_size": 50432,
                "layer_norm_eps": 1e-5,
                "use_parallel_residual": True,
            }
        ),
        "bloom-560m": _bloom(1024, 24, 16),
        "bloom-7b1": _bloom(4096, 30, 32),
        "bloom-176b": _bloom(14336, 70, 112),
        "smollm2-135m": MappingProxyType(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_act": "silu",
                "hidden_size": 576,
                "intermediate_size": 1536,
                "num_hidden_layers": 30,
                "num_attention_heads": 9,
                "num_key_value_heads": 3,
                "vocab_size": 49152,
                "rms_norm_eps": 1e-5,
                "max_position_embeddings": 8192,
                "rope_theta": 100000.0,
                "tie_word_embeddings": True,
            }
        ),
        **DENSE_SHAPES,
        **{name: cast(Mapping[str, object], row["config"]) for name, row in PACKAGED.items()},
    }
)
# The page or the class of transformers that states a configuration; not of every one.
SOURCES: Mapping[str, str] = MappingProxyType(
    {
        **cast(Mapping[str, str], _SIZES["sources"]),
        **{name: str(row["source"]) for name, row in PACKAGED.items()},
    }
)
# Models whose configuration is that of another one.
_SAME: Mapping[str, str] = {"llama-3.3-70b": "llama-3.1-70b"}
# Ends of the names of models that were trained further, of the same shape.
_TUNED = ("-instruct", "-chat", "-it", "-base", "-hf")


def shape_name(name: str) -> str:
    """The name in :data:`SHAPES` of a model: of letters in any case, tuned or not."""
    found = name.lower().replace("_", "-")
    for end in _TUNED:
        if found not in SHAPES:
            found = found.removesuffix(end)
    return _SAME.get(found, found)
