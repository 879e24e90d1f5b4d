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
    "quantization_config": {"quant_method": "mxfp4"},
}


def _deepseek_yarn(scale: float) -> dict[str, object]:
    return {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": scale,
        "mscale_all_dim": scale,
    }


# DeepSeek's own, whatever the size.
_DEEPSEEK: dict[str, object] = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 163840,
}
_DEEPSEEK_V2: dict[str, object] = {
    **_DEEPSEEK,
    "vocab_size": 102400,
    "rope_scaling": _deepseek_yarn(0.707),
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}

_LLAMA4: dict[str, object] = {
    "architectures": ["Llama4ForCausalLM"],
    "intermediate_size_mlp": 16384,
    "head_dim": 128,
    "num_experts_per_tok": 1,
    "attention_chunk_size": 8192,
    "attn_temperature_tuning": True,
    "vocab_size": 202048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
}
_SCOUT_ROPE: dict[str, object] = {
    "rope_type": "llama3",
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
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
        "dbrx-132b": MappingProxyType(
            {
                "model_type": "dbrx",
                "architectures": ["DbrxForCausalLM"],
                "d_model": 6144,
                "n_heads": 48,
                "n_layers": 40,
                "max_seq_len": 32768,
                "vocab_size": 100352,
                "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
                "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
            }
        ),
        "deepseek-v2-lite": decoder(
            "deepseek_v2",
            *(2048, 10944, 27, 16, 16),
            q_lora_rank=None,
            n_routed_experts=64,
            moe_intermediate_size=1408,
            topk_method="greedy",
            **_DEEPSEEK_V2,
        ),
        "deepseek-v2": decoder(
            "deepseek_v2",
            *(5120, 12288, 60, 128, 128),
            q_lora_rank=1536,
            n_routed_experts=160,
            moe_intermediate_size=1536,
            topk_method="group_limited_greedy",
            n_group=8,
            topk_group=3,
            routed_scaling_factor=16.0,
            **_DEEPSEEK_V2,
        ),
        "deepseek-v3": decoder(
            "deepseek_v3",
            *(7168, 18432, 61, 128, 128),
            q_lora_rank=1536,
            vocab_size=129280,
            n_routed_experts=256,
            num_experts_per_tok=8,
            moe_intermediate_size=2048,
            n_shared_experts=1,
            first_k_dense_replace=3,
            quantization_config={
                "quant_method": "fp8",
                "fmt": "e4m3",
                "weight_block_size": [128, 128],
                "activation_scheme": "dynamic",
            },
            topk_method="noaux_tc",
            n_group=8,
            topk_group=4,
            norm_topk_prob=True,
            routed_scaling_factor=2.5,
            rope_scaling=_deepseek_yarn(1.0),
            **_DEEPSEEK,
        ),
        "granite-3.1-1b-a400m": decoder(
            "granitemoe",
            *(1024, 512, 24, 16, 8),
            architectures=["GraniteMoeForCausalLM"],
            tie_word_embeddings=True,
            num_local_experts=32,
            num_experts_per_tok=8,
            vocab_size=49155,
            rms_norm_eps=1e-6,
            rope_theta=1500000.0,
            max_position_embeddings=131072,
            attention_multiplier=0.015625,
            embedding_multiplier=12.0,
            residual_multiplier=0.22,
            logits_scaling=6.0,
        ),
        "llama-4-scout": decoder(
            "llama4_text",
            *(5120, 8192, 48, 40, 8),
            num_local_experts=16,
            use_qk_norm=True,
            max_position_embeddings=10485760,
            rope_scaling=_SCOUT_ROPE,
            **_LLAMA4,
        ),
        "llama-4-maverick": decoder(
            "llama4_text",
            *(5120, 8192, 48, 40, 8),
            num_local_experts=128,
            interleave_moe_layer_step=2,
            use_qk_norm=False,
            max_position_embeddings=1048576,
            **_LLAMA4,
        ),
    }
)
