"""GGUF architectures whose files have layers in one: Phi-3, Falcon, GLM-4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from graphgen.runtime.checkpoint.gguf.gguf_architecture import (
    DECODER_LAYER,
    DECODER_NAMES,
    DECODER_SETTINGS,
    EPSILON,
    SIZES,
    WINDOW,
    Config,
    FusedParts,
    GgufArchitecture,
    decoder_config,
    has_bias,
    kv_heads,
    qkv_parts,
    read_settings,
    rope_base,
    size_of,
    vocab_size,
)
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf.gguf_rope import LONGROPE_TENSORS, read_longrope


def _decoder_fused(config: Config) -> Mapping[str, FusedParts]:
    """q, k and v; gate and up, which the file calls up."""
    sizes = cast("Mapping[str, int]", config)
    heads, kv_heads, size = (
        sizes[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    inner = sizes["intermediate_size"]
    return {
        "attn_qkv": qkv_parts("self_attn", heads * size, kv_heads * size),
        "ffn_up": (("mlp.gate_proj", inner), ("mlp.up_proj", inner)),
    }


def _phi3_config(header: GgufHeader) -> Config:
    """A window of 0, as Phi-4 has, means none."""
    window = header.optional_int(header.own(WINDOW))
    return {
        **decoder_config(header, partial=True, scaling=read_longrope),
        "sliding_window": window or None,
    }


def _glm_config(header: GgufHeader) -> Config:
    biases = has_bias(header, "attn_q") or has_bias(header, "attn_qkv")
    return {**decoder_config(header, partial=True), "attention_bias": biases}


def _falcon_config(header: GgufHeader) -> Config:
    """One key-value head is the first architecture's, several are the new one's."""
    heads = size_of(header, "attention.head_count")
    kv, two = kv_heads(header, heads), _has_two_norms(header)
    sizes = {
        "hidden_size": "embedding_length",
        "ffn_hidden_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "max_position_embeddings": "context_length",
        "layer_norm_epsilon": EPSILON,
    }
    new = two or kv > 1
    return {
        "num_attention_heads": heads,
        "num_kv_heads": kv,
        **read_settings(header, sizes),
        "activation": "gelu",
        "alibi": False,
        "bias": has_bias(header, "attn_qkv"),
        "multi_query": not new,
        "new_decoder_architecture": new,
        "parallel_attn": True,
        "num_ln_in_parallel_attn": 2 if two else 1,
        "rope_theta": rope_base(header),
        "vocab_size": vocab_size(header),
    }


def _has_two_norms(header: GgufHeader) -> bool:
    return "blk.0.attn_norm_2.weight" in header.tensors


def _falcon_fused(config: Config) -> Mapping[str, FusedParts]:
    """llama.cpp's converter has sorted the rows of groups of heads."""
    sizes = cast("Mapping[str, int]", config)
    heads = sizes["num_attention_heads"]
    size = sizes["hidden_size"] // heads
    return {"attn_qkv": qkv_parts("self_attention", heads * size, sizes["num_kv_heads"] * size)}


_PHI3: Final = GgufArchitecture(
    name="phi3",
    model_type="phi3",
    hf_class="Phi3ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer=DECODER_LAYER,
    settings=DECODER_SETTINGS | {WINDOW},
    config=_phi3_config,
    fused=_decoder_fused,
    in_config=LONGROPE_TENSORS,
)
_CHATGLM: Final = GgufArchitecture(
    name="chatglm",
    model_type="glm",
    hf_class="GlmForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer=DECODER_LAYER,
    settings=DECODER_SETTINGS,
    config=_glm_config,
    fused=_decoder_fused,
)
_GLM4: Final = replace(
    _CHATGLM,
    name="glm4",
    model_type="glm4",
    hf_class="Glm4ForCausalLM",
    layer={
        **DECODER_LAYER,
        "post_attention_norm": "post_self_attn_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
    },
)
_FALCON: Final = GgufArchitecture(
    name="falcon",
    model_type="falcon",
    hf_class="FalconForCausalLM",
    layers="transformer.h",
    whole={
        "token_embd": "transformer.word_embeddings",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    layer={
        "attn_norm": "input_layernorm",
        "attn_output": "self_attention.dense",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    settings=SIZES | {EPSILON, "rope.freq_base"},
    config=_falcon_config,
    fused=_falcon_fused,
    in_config=frozenset(),
)
_FALCON_TWO_NORMS: Final = replace(
    _FALCON,
    layer={**_FALCON.layer, "attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"},
    fits=_has_two_norms,
)
FUSED: Final = (_PHI3, _CHATGLM, _GLM4, _FALCON_TWO_NORMS, _FALCON)
