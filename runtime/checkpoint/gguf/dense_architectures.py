"""GGUF architectures of OLMo-2, Gemma 2, StableLM and SmolLM3."""

from __future__ import annotations

from typing import Final

from graphgen.runtime.checkpoint.gguf.gguf_architecture import (
    DECODER_LAYER,
    DECODER_NAMES,
    DECODER_SETTINGS,
    EPSILON,
    GEMMA_NORMS,
    HEAD_NORMS,
    LAYER_NORM_SIZES,
    LESS_ONE,
    ROTARY,
    SIZES,
    WINDOW,
    Config,
    GgufArchitecture,
    biases,
    decoder_config,
    every_fourth_plain,
    has_bias,
    kv_heads,
    read_settings,
    rope_base,
    size_of,
    vocab_size,
)
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader

_ATTENTION_CAP, _LOGIT_CAP = "attn_logit_softcapping", "final_logit_softcapping"
_PARALLEL: Final = "use_parallel_residual"


def _olmo2_config(header: GgufHeader) -> Config:
    return {**decoder_config(header), "attention_bias": has_bias(header, "attn_q")}


def _gemma2_config(header: GgufHeader) -> Config:
    """Scores are divided by the root of the head size; of the 27B model by another number.

    llama.cpp recognises the latter by its 46 layers. Its defaults of the bounds, and of the window,
    are those of transformers, and every other layer has a window.
    """
    config = decoder_config(header)
    layers, heads = size_of(header, "block_count"), size_of(header, "attention.head_count")
    width = size_of(header, "embedding_length")
    window = header.own(WINDOW)
    return {
        **config,
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": width // heads if layers == 46 else config["head_dim"],
        "attention_bias": has_bias(header, "attn_q"),
        "sliding_window": header.positive_int(window) if window in header.metadata else 4096,
        "attn_logit_softcapping": header.positive_float(header.own(_ATTENTION_CAP), 50.0),
        "final_logit_softcapping": header.positive_float(header.own(_LOGIT_CAP), 30.0),
    }


def _stablelm_config(header: GgufHeader) -> Config:
    """llama.cpp has MLP and attention in parallel where a layer has no second norm."""
    heads, hidden = size_of(header, "attention.head_count"), size_of(header, "embedding_length")
    return {
        "hidden_act": "silu",
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads(header, heads),
        **read_settings(header, LAYER_NORM_SIZES),
        "partial_rotary_factor": size_of(header, "rope.dimension_count") * heads / hidden,
        "rope_theta": rope_base(header),
        "use_qkv_bias": has_bias(header, "attn_q"),
        "qk_layernorm": "blk.0.attn_q_norm.weight" in header.tensors,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in header.tensors,
        "vocab_size": vocab_size(header),
    }


def _smollm3_config(header: GgufHeader) -> Config:
    """llama.cpp leaves every fourth layer without rotary positions."""
    return {
        **decoder_config(header),
        **biases(header),
        "no_rope_layers": every_fourth_plain(header),
        "use_sliding_window": False,
    }


_OLMO2: Final = GgufArchitecture(
    name="olmo2",
    model_type="olmo2",
    hf_class="Olmo2ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={
        **DECODER_LAYER,
        **HEAD_NORMS,
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    settings=DECODER_SETTINGS,
    config=_olmo2_config,
)
_GEMMA2: Final = GgufArchitecture(
    name="gemma2",
    model_type="gemma2",
    hf_class="Gemma2ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={**DECODER_LAYER, **GEMMA_NORMS},
    settings=DECODER_SETTINGS | {WINDOW, _ATTENTION_CAP, _LOGIT_CAP},
    config=_gemma2_config,
    restore=dict.fromkeys(("output_norm", "attn_norm", *GEMMA_NORMS), LESS_ONE),
)
_STABLELM: Final = GgufArchitecture(
    name="stablelm",
    model_type="stablelm",
    hf_class="StableLmForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={
        **DECODER_LAYER,
        "attn_q_norm": "self_attn.q_layernorm.norms",
        "attn_k_norm": "self_attn.k_layernorm.norms",
    },
    settings=SIZES | {EPSILON, _PARALLEL, "rope.dimension_count", "rope.freq_base"},
    config=_stablelm_config,
)
_SMOLLM3: Final = GgufArchitecture(
    name="smollm3",
    model_type="smollm3",
    hf_class="SmolLM3ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer=DECODER_LAYER,
    settings=DECODER_SETTINGS,
    config=_smollm3_config,
    restore=ROTARY,
)
DENSE: Final = (_OLMO2, _GEMMA2, _STABLELM, _SMOLLM3)
