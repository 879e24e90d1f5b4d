"""The GGUF architecture of DeepSeek-V2 and V3, which have latent attention and many experts.

llama.cpp's converter makes two tensors of ``kv_b_proj``: keys of each head as columns
``attn_k_b`` [H,L,N], and values ``attn_v_b`` [H,V,L]. Older files have it as ``attn_kv_b``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from graphgen.runtime.checkpoint.gguf.gguf_architecture import (
    DECODER_LAYER,
    DECODER_NAMES,
    DECODER_SETTINGS,
    RMS_EPSILON,
    Config,
    GgufArchitecture,
    read_settings,
    rope_base,
    size_of,
    vocab_size,
)
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf.gguf_rope import read_latent_scaling
from graphgen.runtime.checkpoint.gguf.mixture_architectures import (
    MIXTURE_SETTINGS,
    PROJECTIONS,
    expert_layer,
    inner_size,
)

_GATING, _NORMALIZED, _SCALE = "expert_gating_func", "expert_weights_norm", "expert_weights_scale"
_GROUPS, _GROUPS_USED = "expert_group_count", "expert_group_used_count"
_SHARED, _DENSE = "expert_shared_count", "leading_dense_block_count"
_KEY, _VALUE = "attention.key_length", "attention.value_length"
_Q_RANK, _KV_RANK = "attention.q_lora_rank", "attention.kv_lora_rank"
# gguf.constants.ExpertGatingFuncType
_SOFTMAX, _SIGMOID = 1, 2


def _count(header: GgufHeader, key: str) -> int:
    """A number from the file, at least 0; 0 if the file does not state it."""
    value = header.optional_int(header.own(key)) or 0
    if value < 0:
        raise header.bad_value(header.own(key), f"is {value}; it must be at least 0")
    return value


def _head_sizes(header: GgufHeader) -> Config:
    """Sizes of a head's keys and values; the plain keys are of latents in newer files."""
    latent = header.own(f"{_KEY}_mla") in header.metadata
    key, value = (f"{_KEY}_mla", f"{_VALUE}_mla") if latent else (_KEY, _VALUE)
    rotated = size_of(header, "rope.dimension_count")
    whole = size_of(header, key)
    if whole <= rotated:
        what = f"is {whole}; {rotated} elements of a key are rotated, and there are others"
        raise header.bad_value(header.own(key), what)
    return {
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": whole - rotated,
        "v_head_dim": size_of(header, value),
    }


def _config(header: GgufHeader) -> Config:
    """Settings of both models; llama.cpp takes no groups of experts where the file names none."""
    heads, theta = size_of(header, "attention.head_count"), rope_base(header)
    sizes = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "rms_norm_eps": RMS_EPSILON,
        "max_position_embeddings": "context_length",
        "kv_lora_rank": _KV_RANK,
        "n_routed_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
    }
    parts = _head_sizes(header)
    rotated = size_of(header, "rope.dimension_count")
    return {
        "hidden_act": "silu",
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        **read_settings(header, sizes),
        **parts,
        "rope_theta": theta,
        "rope_scaling": read_latent_scaling(header, rotated, theta),
        "q_lora_rank": _count(header, _Q_RANK) or None,
        "moe_intermediate_size": inner_size(header),
        "n_shared_experts": _count(header, _SHARED) or None,
        "first_k_dense_replace": _count(header, _DENSE),
        "moe_layer_freq": 1,
        "routed_scaling_factor": header.positive_float(header.own(_SCALE), 1.0),
        "norm_topk_prob": header.optional_bool(header.own(_NORMALIZED)) is True,
        "n_group": max(_count(header, _GROUPS), 1),
        "topk_group": max(_count(header, _GROUPS_USED), 1),
        "vocab_size": vocab_size(header),
    }


def _second_config(header: GgufHeader) -> Config:
    config, gating = _config(header), header.own(_GATING)
    if header.metadata.get(gating) not in (None, 0, _SOFTMAX):
        raise header.unsupported(gating, f"supported: {_SOFTMAX} (softmax), {_SIGMOID} (sigmoid)")
    grouped = config["n_group"] != 1
    return {**config, "topk_method": "group_limited_greedy" if grouped else "greedy"}


def _third_config(header: GgufHeader) -> Config:
    return {**_config(header), "topk_method": "noaux_tc", "rope_interleave": True}


def _is_third(header: GgufHeader) -> bool:
    return header.metadata.get(header.own(_GATING)) == _SIGMOID


_DEEPSEEK_V2: Final = GgufArchitecture(
    name="deepseek2",
    model_type="deepseek_v2",
    hf_class="DeepseekV2ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={
        **DECODER_LAYER,
        **expert_layer("mlp", "gate", PROJECTIONS),
        "attn_q_a": "self_attn.q_a_proj",
        "attn_q_a_norm": "self_attn.q_a_layernorm",
        "attn_q_b": "self_attn.q_b_proj",
        "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm": "self_attn.kv_a_layernorm",
        "attn_kv_b": "self_attn.kv_b_proj",
        "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
        "ffn_up_shexp": "mlp.shared_experts.up_proj",
        "ffn_down_shexp": "mlp.shared_experts.down_proj",
        "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    },
    settings=DECODER_SETTINGS
    | MIXTURE_SETTINGS
    | {_GATING, _NORMALIZED, _SCALE, _GROUPS, _GROUPS_USED, _SHARED, _DENSE}
    | {_Q_RANK, _KV_RANK, f"{_KEY}_mla", f"{_VALUE}_mla"},
    config=_second_config,
)
_DEEPSEEK_V3: Final = replace(
    _DEEPSEEK_V2,
    model_type="deepseek_v3",
    hf_class="DeepseekV3ForCausalLM",
    config=_third_config,
    fits=_is_third,
)
LATENT: Final = (_DEEPSEEK_V3, _DEEPSEEK_V2)
