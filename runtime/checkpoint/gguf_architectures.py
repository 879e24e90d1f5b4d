"""The supported GGUF architectures: one row each of tensor names, value transforms and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf_architecture import (
    DECODER_LAYER,
    DECODER_SETTINGS,
    EPSILON,
    FUSED_LAYER,
    GEMMA_NORMS,
    HEAD_NORMS,
    LAYER_NORM_SIZES,
    LESS_ONE,
    ROTARY,
    SIZES,
    TRANSPOSED,
    WINDOW,
    WINDOW_PATTERN,
    Config,
    FusedParts,
    GgufArchitecture,
    biases,
    decoder_config,
    every_fourth_plain,
    fused_rows,
    has_bias,
    kv_heads,
    qkv_parts,
    read_settings,
    require_all_heads,
    rope_base,
    size_of,
    vocab_size,
)
from graphgen.runtime.checkpoint.gguf_expert_architectures import (
    EXPERT_COUNT,
    EXPERTS_USED,
    MIXTURES,
    PROJECTIONS,
    expert_layer,
    shared_expert,
)
from graphgen.runtime.checkpoint.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf_rope import LONGROPE_TENSORS, read_longrope

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


_SCORES, _EMBEDDINGS = "attention.scale", "embedding_scale"
_ADDENDS, _LOGITS = "residual_scale", "logit_scale"
_SHARED_INNER: Final = "expert_shared_feed_forward_length"
_FACTORS: Final = frozenset({_SCORES, _EMBEDDINGS, _ADDENDS, _LOGITS})


def _granite_config(header: GgufHeader) -> Config:
    return {**_decoder(header), **biases(header)}


def _decoder(header: GgufHeader) -> Config:
    """Llama's settings and four factors; without one of the scores it is the root of the head size.

    Models without rotary positions state that by a key that means something else elsewhere.
    """
    config, finetuned = decoder_config(header), header.own("rope.scaling.finetuned")
    if header.optional_bool(finetuned) is False:
        raise header.unsupported(finetuned, "models without rotary positions are not supported")
    head_dim = cast("int", config["head_dim"])
    return {
        **config,
        "attention_multiplier": header.positive_float(header.own(_SCORES), head_dim**-0.5),
        "embedding_multiplier": header.positive_float(header.own(_EMBEDDINGS), 1.0),
        "residual_multiplier": header.positive_float(header.own(_ADDENDS), 1.0),
        "logits_scaling": header.positive_float(header.own(_LOGITS), 1.0),
    }


def _granite_moe_config(header: GgufHeader) -> Config:
    return {
        **_decoder(header),
        "attention_bias": has_bias(header, "attn_q"),
        "num_local_experts": size_of(header, EXPERT_COUNT),
        "num_experts_per_tok": size_of(header, EXPERTS_USED),
    }


def _granite_shared_config(header: GgufHeader) -> Config:
    return {
        **_granite_moe_config(header),
        "shared_intermediate_size": size_of(header, _SHARED_INNER),
    }


def _is_shared(header: GgufHeader) -> bool:
    return header.own(_SHARED_INNER) in header.metadata


def _llama_config(header: GgufHeader) -> Config:
    return {**decoder_config(header), **biases(header)}


def _qwen2_config(header: GgufHeader) -> Config:
    """llama.cpp reads all positions in every layer, as the published models do."""
    return {**decoder_config(header), "use_sliding_window": False}


def _qwen3_config(header: GgufHeader) -> Config:
    return {**_qwen2_config(header), "attention_bias": has_bias(header, "attn_q")}


def _gemma3_config(header: GgufHeader) -> Config:
    """Gemma 3 divides scores by the root of the head size, Gemma 3 27B by another number.

    llama.cpp recognises the latter by its 62 layers. Its defaults are those of transformers: every
    sixth layer reads all positions, the others rotate by base 10000.
    """
    config = decoder_config(header)
    layers, heads = size_of(header, "block_count"), size_of(header, "attention.head_count")
    return {
        **config,
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": rope_base(header, "rope.freq_base_swa"),
        "query_pre_attn_scalar": (
            size_of(header, "embedding_length") // heads if layers == 62 else config["head_dim"]
        ),
        "attention_bias": has_bias(header, "attn_q"),
        **_gemma_windows(header, layers),
    }


def _gemma_windows(header: GgufHeader, layers: int) -> Config:
    """The window of sliding layers, and the layers that have it."""
    window, pattern = header.own(WINDOW), header.own(WINDOW_PATTERN)
    if window not in header.metadata:
        return {"layer_types": ["full_attention"] * layers}
    slides = header.metadata.get(pattern)
    found: Config = {"sliding_window": header.positive_int(window)}
    if slides is None:
        return {**found, "sliding_window_pattern": 6}
    if not isinstance(slides, np.ndarray):
        return {**found, "sliding_window_pattern": header.positive_int(pattern)}
    if slides.shape != (layers,):
        raise header.bad_value(pattern, f"is about {len(slides)} layers of {layers}")
    kinds = ["sliding_attention" if one else "full_attention" for one in slides.tolist()]
    return {**found, "layer_types": kinds}


def _gpt2_config(header: GgufHeader) -> Config:
    require_all_heads(header)
    sizes = {
        "n_head": "attention.head_count",
        "n_embd": "embedding_length",
        "n_inner": "feed_forward_length",
        "n_layer": "block_count",
        "n_positions": "context_length",
        "layer_norm_epsilon": EPSILON,
    }
    more = {"activation_function": "gelu_new", "vocab_size": vocab_size(header)}
    return {**read_settings(header, sizes), **more}


def _bloom_config(header: GgufHeader) -> Config:
    hidden = size_of(header, "embedding_length")
    require_all_heads(header)
    if size_of(header, "feed_forward_length") != 4 * hidden:
        key = header.own("feed_forward_length")
        raise header.unsupported(key, f"it must be four times the width, {4 * hidden}")
    sizes = {
        "n_layer": "block_count",
        "n_head": "attention.head_count",
        "layer_norm_epsilon": EPSILON,
    }
    return {"hidden_size": hidden, **read_settings(header, sizes), "vocab_size": vocab_size(header)}


def _gpt_neox_config(header: GgufHeader) -> Config:
    heads, hidden = size_of(header, "attention.head_count"), size_of(header, "embedding_length")
    require_all_heads(header)
    parallel = header.optional_bool(header.own("use_parallel_residual"))
    return {
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "num_attention_heads": heads,
        **read_settings(header, LAYER_NORM_SIZES),
        "rotary_pct": size_of(header, "rope.dimension_count") * heads / hidden,
        "rope_theta": rope_base(header),
        "use_parallel_residual": parallel is not False,
        "attention_bias": has_bias(header, "attn_qkv"),
        "vocab_size": vocab_size(header),
    }


_CHATGLM: Final = GgufArchitecture(
    name="chatglm",
    model_type="glm",
    hf_class="GlmForCausalLM",
    config=_glm_config,
    fused=_decoder_fused,
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
_GRANITE_MOE: Final = GgufArchitecture(
    name="granitemoe",
    model_type="granitemoe",
    hf_class="GraniteMoeForCausalLM",
    layer={**DECODER_LAYER, **expert_layer("block_sparse_moe", "router.layer", PROJECTIONS)},
    settings=DECODER_SETTINGS | _FACTORS | {EXPERT_COUNT, EXPERTS_USED},
    config=_granite_moe_config,
    restore=ROTARY,
)
_ALL: Final = (
    *MIXTURES,
    GgufArchitecture(
        name="llama",
        model_type="llama",
        hf_class="LlamaForCausalLM",
        config=_llama_config,
        restore=ROTARY,
    ),
    GgufArchitecture(
        name="qwen2",
        model_type="qwen2",
        hf_class="Qwen2ForCausalLM",
        config=_qwen2_config,
    ),
    GgufArchitecture(
        name="qwen3",
        model_type="qwen3",
        hf_class="Qwen3ForCausalLM",
        layer={**DECODER_LAYER, **HEAD_NORMS},
        config=_qwen3_config,
    ),
    GgufArchitecture(
        name="gemma3",
        model_type="gemma3_text",
        hf_class="Gemma3ForCausalLM",
        layer={**DECODER_LAYER, **HEAD_NORMS, **GEMMA_NORMS},
        settings=DECODER_SETTINGS | {WINDOW, WINDOW_PATTERN, "rope.freq_base_swa"},
        config=_gemma3_config,
        restore=dict.fromkeys(("output_norm", "attn_norm", *HEAD_NORMS, *GEMMA_NORMS), LESS_ONE),
    ),
    GgufArchitecture(
        name="gpt2",
        model_type="gpt2",
        hf_class="GPT2LMHeadModel",
        layers="transformer.h",
        whole={
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layer={
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        settings=SIZES | {EPSILON},
        config=_gpt2_config,
        restore={
            f"{name}.weight": TRANSPOSED
            for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
        },
    ),
    GgufArchitecture(
        name="bloom",
        model_type="bloom",
        hf_class="BloomForCausalLM",
        layers="transformer.h",
        whole={
            "token_embd": "transformer.word_embeddings",
            "token_embd_norm": "transformer.word_embeddings_layernorm",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layer=FUSED_LAYER,
        settings=SIZES | {EPSILON},
        config=_bloom_config,
        restore={"attn_qkv": fused_rows("n_head")},
    ),
    GgufArchitecture(
        name="gptneox",
        model_type="gpt_neox",
        hf_class="GPTNeoXForCausalLM",
        layers="gpt_neox.layers",
        whole={
            "token_embd": "gpt_neox.embed_in",
            "output_norm": "gpt_neox.final_layer_norm",
            "output": "lm_head",
        },
        layer={
            **FUSED_LAYER,
            "attn_qkv": "attention.query_key_value",
            "attn_output": "attention.dense",
        },
        settings=SIZES
        | {EPSILON, "use_parallel_residual", "rope.dimension_count", "rope.freq_base"},
        config=_gpt_neox_config,
        restore={"attn_qkv": fused_rows("num_attention_heads")},
    ),
    GgufArchitecture(
        name="olmo2",
        model_type="olmo2",
        hf_class="Olmo2ForCausalLM",
        layer={
            **DECODER_LAYER,
            **HEAD_NORMS,
            "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
        config=_olmo2_config,
    ),
    GgufArchitecture(
        name="gemma2",
        model_type="gemma2",
        hf_class="Gemma2ForCausalLM",
        layer={**DECODER_LAYER, **GEMMA_NORMS},
        settings=DECODER_SETTINGS | {WINDOW, _ATTENTION_CAP, _LOGIT_CAP},
        config=_gemma2_config,
        restore=dict.fromkeys(("output_norm", "attn_norm", *GEMMA_NORMS), LESS_ONE),
    ),
    GgufArchitecture(
        name="stablelm",
        model_type="stablelm",
        hf_class="StableLmForCausalLM",
        layer={
            **DECODER_LAYER,
            "attn_q_norm": "self_attn.q_layernorm.norms",
            "attn_k_norm": "self_attn.k_layernorm.norms",
        },
        settings=SIZES | {EPSILON, _PARALLEL, "rope.dimension_count", "rope.freq_base"},
        config=_stablelm_config,
    ),
    GgufArchitecture(
        name="smollm3",
        model_type="smollm3",
        hf_class="SmolLM3ForCausalLM",
        config=_smollm3_config,
        restore=ROTARY,
    ),
    GgufArchitecture(
        name="phi3",
        model_type="phi3",
        hf_class="Phi3ForCausalLM",
        settings=DECODER_SETTINGS | {WINDOW},
        config=_phi3_config,
        fused=_decoder_fused,
        in_config=LONGROPE_TENSORS,
    ),
    _CHATGLM,
    replace(
        _CHATGLM,
        name="glm4",
        model_type="glm4",
        hf_class="Glm4ForCausalLM",
        layer={
            **DECODER_LAYER,
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
    ),
    replace(
        _FALCON,
        layer={**_FALCON.layer, "attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"},
        fits=_has_two_norms,
    ),
    _FALCON,
    GgufArchitecture(
        name="granite",
        model_type="granite",
        hf_class="GraniteForCausalLM",
        settings=DECODER_SETTINGS | _FACTORS,
        config=_granite_config,
        restore=ROTARY,
    ),
    replace(
        _GRANITE_MOE,
        model_type="granitemoeshared",
        hf_class="GraniteMoeSharedForCausalLM",
        layer={
            **_GRANITE_MOE.layer,
            **shared_expert("block_sparse_moe.shared_experts"),
        },
        settings=_GRANITE_MOE.settings | {_SHARED_INNER},
        config=_granite_shared_config,
        fits=_is_shared,
    ),
    _GRANITE_MOE,
)
ARCHITECTURES: Final[Mapping[str, tuple[GgufArchitecture, ...]]] = {
    name: tuple([item for item in _ALL if item.name == name])
    for name in sorted({item.name for item in _ALL})
}
"""By ``general.architecture`` the models that have it; the last one fits every file."""


def architecture_of(header: GgufHeader) -> GgufArchitecture:
    """The row of the model's architecture (GG0501 if it has none)."""
    found = ARCHITECTURES.get(header.architecture)
    if found is None:
        raise GraphgenError(
            "GG0501",
            f"the GGUF file holds architecture '{header.architecture}'; "
            f"supported: {', '.join(ARCHITECTURES)}",
            where=str(header.file.path),
            help="use the model's safetensors checkpoint instead",
        )
    return next(item for item in found if item.fits(header))
