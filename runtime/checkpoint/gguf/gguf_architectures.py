"""The supported GGUF architectures: one row each of tensor names, value transforms and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf.dense_architectures import DENSE
from graphgen.runtime.checkpoint.gguf.fused_architectures import FUSED
from graphgen.runtime.checkpoint.gguf.gguf_architecture import (
    DECODER_LAYER,
    DECODER_NAMES,
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
    GgufArchitecture,
    biases,
    decoder_config,
    fused_rows,
    has_bias,
    read_settings,
    require_all_heads,
    rope_base,
    size_of,
    vocab_size,
)
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf.granite_architectures import GRANITE
from graphgen.runtime.checkpoint.gguf.latent_architectures import LATENT
from graphgen.runtime.checkpoint.gguf.mixture_architectures import MIXTURES


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


LLAMA: Final = GgufArchitecture(
    name="llama",
    model_type="llama",
    hf_class="LlamaForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer=DECODER_LAYER,
    settings=DECODER_SETTINGS,
    config=_llama_config,
    restore=ROTARY,
)
QWEN2: Final = GgufArchitecture(
    name="qwen2",
    model_type="qwen2",
    hf_class="Qwen2ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer=DECODER_LAYER,
    settings=DECODER_SETTINGS,
    config=_qwen2_config,
)
QWEN3: Final = GgufArchitecture(
    name="qwen3",
    model_type="qwen3",
    hf_class="Qwen3ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={**DECODER_LAYER, **HEAD_NORMS},
    settings=DECODER_SETTINGS,
    config=_qwen3_config,
)
GEMMA3: Final = GgufArchitecture(
    name="gemma3",
    model_type="gemma3_text",
    hf_class="Gemma3ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={**DECODER_LAYER, **HEAD_NORMS, **GEMMA_NORMS},
    settings=DECODER_SETTINGS | {WINDOW, WINDOW_PATTERN, "rope.freq_base_swa"},
    config=_gemma3_config,
    restore=dict.fromkeys(("output_norm", "attn_norm", *HEAD_NORMS, *GEMMA_NORMS), LESS_ONE),
)
GPT2: Final = GgufArchitecture(
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
        f"{name}.weight": TRANSPOSED for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
    },
)
BLOOM: Final = GgufArchitecture(
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
)
GPT_NEOX: Final = GgufArchitecture(
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
    settings=SIZES | {EPSILON, "use_parallel_residual", "rope.dimension_count", "rope.freq_base"},
    config=_gpt_neox_config,
    restore={"attn_qkv": fused_rows("num_attention_heads")},
)

_ALL: Final = (
    *(*MIXTURES, *LATENT, *DENSE, *FUSED, *GRANITE),
    *(LLAMA, QWEN2, QWEN3, GEMMA3, GPT2, BLOOM, GPT_NEOX),
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
