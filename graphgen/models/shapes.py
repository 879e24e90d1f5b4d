"""Configurations known by name, so that a graph can be built without any checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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


SHAPES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "llama-3.1-8b": _llama_3_1(4096, 14336, 32, 32),
        "llama-3.1-70b": _llama_3_1(8192, 28672, 80, 64),
        "llama-3.1-405b": _llama_3_1(16384, 53248, 126, 128),
        "gpt2": _gpt2(768, 12, 12),
        "gpt2-medium": _gpt2(1024, 24, 16),
        "gpt2-large": _gpt2(1280, 36, 20),
        "gpt2-xl": _gpt2(1600, 48, 25),
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
    }
)
