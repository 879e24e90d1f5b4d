"""Named configurations of published decoders without experts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from graphgen.models.expert_shapes import decoder

_OLMO2: dict[str, object] = {
    "vocab_size": 100352,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0,
    "max_position_embeddings": 4096,
}
_GEMMA2: dict[str, object] = {
    "hidden_act": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "vocab_size": 256000,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
_STABLELM: dict[str, object] = {
    "architectures": ["StableLmForCausalLM"],
    "vocab_size": 100352,
    "layer_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.25,
    "max_position_embeddings": 4096,
}
_GLM4: dict[str, object] = {
    "head_dim": 128,
    "partial_rotary_factor": 0.5,
    "vocab_size": 151552,
    "rope_theta": 10000.0,
}


def _falcon(hidden: int, layers: int, heads: int, **more: object) -> Mapping[str, object]:
    return MappingProxyType(
        {
            "model_type": "falcon",
            "architectures": ["FalconForCausalLM"],
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "vocab_size": 65024,
            "layer_norm_epsilon": 1e-5,
            "parallel_attn": True,
            "alibi": False,
            "bias": False,
            **more,
        }
    )


DENSE_SHAPES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "olmo-2-7b": decoder("olmo2", *(4096, 11008, 32, 32, 32), **_OLMO2),
        "olmo-2-32b": decoder("olmo2", *(5120, 27648, 64, 40, 8), **_OLMO2),
        "phi-3-mini": decoder(
            "phi3",
            *(3072, 8192, 32, 32, 32),
            vocab_size=32064,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            max_position_embeddings=4096,
            sliding_window=2047,
        ),
        "phi-4": decoder(
            "phi3",
            *(5120, 17920, 40, 40, 10),
            vocab_size=100352,
            rms_norm_eps=1e-5,
            rope_theta=250000.0,
            max_position_embeddings=16384,
        ),
        "gemma-2-2b": decoder("gemma2", *(2304, 9216, 26, 8, 4), **_GEMMA2),
        "gemma-2-9b": decoder("gemma2", *(3584, 14336, 42, 16, 8), **_GEMMA2),
        "gemma-2-27b": decoder(
            "gemma2",
            *(4608, 36864, 46, 32, 16),
            **{**_GEMMA2, "head_dim": 128, "query_pre_attn_scalar": 144},
        ),
        "stablelm-2-1.6b": decoder(
            "stablelm", *(2048, 5632, 24, 32, 32), use_qkv_bias=True, **_STABLELM
        ),
        "stablelm-2-12b": decoder(
            "stablelm",
            *(5120, 13824, 40, 32, 8),
            qk_layernorm=True,
            use_parallel_residual=True,
            **_STABLELM,
        ),
        "falcon-7b": _falcon(4544, 32, 71, multi_query=True),
        "falcon-40b": _falcon(8192, 60, 128, num_kv_heads=8, new_decoder_architecture=True),
        "falcon-rw-1b": _falcon(
            *(2048, 24, 32),
            alibi=True,
            bias=True,
            multi_query=False,
            parallel_attn=False,
            vocab_size=50304,
        ),
        "smollm3-3b": decoder(
            "smollm3",
            *(2048, 11008, 36, 16, 4),
            architectures=["SmolLM3ForCausalLM"],
            vocab_size=128256,
            rms_norm_eps=1e-6,
            rope_theta=5000000.0,
            max_position_embeddings=65536,
            no_rope_layer_interval=4,
            tie_word_embeddings=True,
        ),
        "granite-3.3-8b": decoder(
            "granite",
            *(4096, 12800, 40, 32, 8),
            vocab_size=49159,
            rms_norm_eps=1e-5,
            rope_theta=10000000.0,
            max_position_embeddings=131072,
            embedding_multiplier=12.0,
            residual_multiplier=0.22,
            attention_multiplier=0.0078125,
            logits_scaling=16.0,
            tie_word_embeddings=True,
        ),
        "glm-4-9b": decoder(
            "glm",
            *(4096, 13696, 40, 32, 2),
            rms_norm_eps=1.5625e-7,
            max_position_embeddings=131072,
            attention_bias=True,
            **_GLM4,
        ),
        "glm-4-9b-0414": decoder(
            "glm4",
            *(4096, 13696, 40, 32, 2),
            rms_norm_eps=1e-5,
            max_position_embeddings=32768,
            attention_bias=True,
            **_GLM4,
        ),
        "glm-4-32b-0414": decoder(
            "glm4",
            *(6144, 23040, 61, 48, 2),
            rms_norm_eps=1e-5,
            max_position_embeddings=32768,
            attention_bias=False,
            **_GLM4,
        ),
    }
)
