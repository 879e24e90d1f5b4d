"""Named configurations of published mixtures of experts, and the form of Llama-like ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def decoder(
    kind: str, hidden: int, intermediate: int, layers: int, heads: int, kv: int, **more: object
) -> Mapping[str, object]:
    """A Llama-like decoder of another family."""
    return MappingProxyType(
        {
            "model_type": kind,
            "architectures": ["".join(map(str.capitalize, kind.split("_"))) + "ForCausalLM"],
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv,
            "tie_word_embeddings": False,
            **more,
        }
    )


# Qwen's own, whatever the size.
QWEN: dict[str, object] = {
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
}
_QWEN3_MOE: dict[str, object] = {
    **QWEN,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
}
_MIXTRAL: dict[str, object] = {
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 32768,
}
_GPT_OSS: dict[str, object] = {
    "head_dim": 64,
    "num_experts_per_tok": 4,
    "vocab_size": 201088,
    "sliding_window": 128,
    "attention_bias": True,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
    "max_position_embeddings": 131072,
    "swiglu_limit": 7.0,
}


EXPERT_SHAPES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "mixtral-8x7b": decoder("mixtral", *(4096, 14336, 32, 32, 8), **_MIXTRAL),
        "mixtral-8x22b": decoder(
            "mixtral", *(6144, 16384, 56, 48, 8), **{**_MIXTRAL, "max_position_embeddings": 65536}
        ),
        "qwen1.5-moe-a2.7b": decoder(
            "qwen2_moe",
            *(2048, 5632, 24, 16, 16),
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
            num_experts=60,
            num_experts_per_tok=4,
            vocab_size=151936,
            max_position_embeddings=8192,
            **QWEN,
        ),
        "qwen3-30b-a3b": decoder("qwen3_moe", *(2048, 6144, 48, 32, 4), **_QWEN3_MOE),
        "qwen3-235b-a22b": decoder(
            "qwen3_moe", *(4096, 12288, 94, 64, 4), **{**_QWEN3_MOE, "moe_intermediate_size": 1536}
        ),
        "gpt-oss-20b": decoder(
            "gpt_oss", *(2880, 2880, 24, 64, 8), num_local_experts=32, **_GPT_OSS
        ),
        "gpt-oss-120b": decoder(
            "gpt_oss", *(2880, 2880, 36, 64, 8), num_local_experts=128, **_GPT_OSS
        ),
    }
)
