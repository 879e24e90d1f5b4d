"""The supported GGUF architectures: one row each of tensor names, value transforms and settings.

Names on the left are llama.cpp's, as in the table ``MODEL_TENSORS`` of the gguf package. Value
transforms undo what llama.cpp's converter does to the model of that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf.gguf_rope import ROPE_KEYS, read_rope_scaling
from graphgen.runtime.checkpoint.interfaces import Array

_TENSOR_NAME: Final = re.compile(
    r"(?:blk\.(?P<layer>0|[1-9][0-9]*)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)"
)
Config = dict[str, object]


@dataclass(frozen=True)
class Restore:
    """One inverse transform of a stored tensor.

    Attributes:
        values: (stored values, number of heads) -> Hugging Face's values; 1 head where
            :attr:`heads` is empty.
        heads: the configuration's key for the number of heads that rows belong to, or empty.
        parts: the number of equal parts the rows of a head come in.
        transposed: the shape is reversed.
    """

    values: Callable[[Array, int], Array]
    heads: str = ""
    parts: int = 1
    transposed: bool = False


def _halves_of_heads(values: Array, heads: int) -> Array:
    """Rows of each head from interleaved pairs to two halves, as Hugging Face rotates them.

    The inverse of ``w.reshape(heads, 2, d // 2, in).swapaxes(1, 2)``.
    """
    pairs = values.reshape(heads, len(values) // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _head_by_head(values: Array, heads: int) -> Array:
    """Rows of all of q, all of k, all of v to the rows of q, k and v of each head.

    The inverse of ``w.reshape(heads, 3, d, in).swapaxes(0, 1)``.
    """
    parts = values.reshape(3, heads, len(values) // heads // 3, *values.shape[1:])
    return parts.swapaxes(0, 1).reshape(values.shape)


def _less_one(values: Array, heads: int) -> Array:
    """A norm's factor to Gemma's weight: ``weight = factor - 1``."""
    weight = cast("npt.NDArray[np.floating]", values)
    return weight - np.ones((), weight.dtype)


def _rotary_rows(heads: str) -> Restore:
    return Restore(_halves_of_heads, heads, parts=2)


def _fused_rows(heads: str) -> Restore:
    return Restore(_head_by_head, heads, parts=3)


_LESS_ONE: Final = Restore(_less_one)
# [out, in] to [in, out], the layout of ``Conv1D``'s weight.
_TRANSPOSED: Final = Restore(lambda values, _: np.ascontiguousarray(values.T), transposed=True)


@dataclass(frozen=True)
class GgufArchitecture:
    """One architecture.

    Attributes:
        name: ``general.architecture``.
        model_type: Hugging Face's ``model_type``.
        hf_class: Hugging Face's class, for the key ``architectures``.
        layers: the prefix of Hugging Face's names of a layer's tensors, before its number.
        whole: llama.cpp's name to Hugging Face's of tensors outside of layers, without the ending.
        layer: likewise of a layer's, without the prefix.
        restore: by llama.cpp's name with its ending, or without it for weight and bias.
        settings: the metadata keys that ``config`` translates, without the architecture in front.
        config: the rest of the configuration under Hugging Face's names.
    """

    name: str
    model_type: str
    hf_class: str
    layers: str
    whole: Mapping[str, str]
    layer: Mapping[str, str]
    settings: frozenset[str]
    config: Callable[[GgufHeader], Config]
    restore: Mapping[str, Restore] = field(default_factory=dict[str, Restore])

    def hf_name(self, name: str) -> str:
        """The Hugging Face name of the GGUF tensor ``name``; ``name`` itself if there is none."""
        match = _TENSOR_NAME.fullmatch(name)
        if match is None:
            return name
        layer, part, kind = match["layer"], match["part"], match["kind"]
        if layer is None:
            return f"{self.whole[part]}.{kind}" if part in self.whole else name
        known = self.layer.get(part)
        return f"{self.layers}.{layer}.{known}.{kind}" if known else name

    def restore_of(self, name: str) -> Restore | None:
        """The inverse transform of the GGUF tensor ``name``, if it needs one."""
        match = _TENSOR_NAME.fullmatch(name)
        if match is None:
            return None
        part = match["part"]
        return self.restore.get(f"{part}.{match['kind']}", self.restore.get(part))


_SIZES: Final = frozenset(
    {
        "vocab_size",
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
    }
)
_EPSILON, _RMS_EPSILON = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"
_WINDOW, _WINDOW_PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
_DECODER_SETTINGS: Final = (
    _SIZES
    | ROPE_KEYS
    | {
        "attention.key_length",
        "attention.value_length",
        _RMS_EPSILON,
        "rope.dimension_count",
        "rope.freq_base",
    }
)


def _read(header: GgufHeader, keys: Mapping[str, str]) -> Config:
    """Settings by Hugging Face's name; epsilons are numbers, all others sizes."""
    read: Config = {}
    for hf_name, key in keys.items():
        full = header.own(key)
        is_number = key in (_EPSILON, _RMS_EPSILON)
        read[hf_name] = header.positive_float(full) if is_number else header.positive_int(full)
    return read


def _size(header: GgufHeader, key: str) -> int:
    return header.positive_int(header.own(key))


def _theta(header: GgufHeader, key: str = "rope.freq_base") -> float:
    # The default is llama.cpp's.
    return header.positive_float(header.own(key), 10000.0)


def _kv_heads(header: GgufHeader, heads: int) -> int:
    key = header.own("attention.head_count_kv")
    return header.positive_int(key) if key in header.metadata else heads


def _has_bias(header: GgufHeader, part: str) -> bool:
    return f"blk.0.{part}.bias" in header.tensors


def _decoder_config(header: GgufHeader) -> Config:
    """The settings that Llama, Qwen and Gemma share."""
    heads, hidden = _size(header, "attention.head_count"), _size(header, "embedding_length")
    head_dim, theta = _head_dim(header, hidden, heads), _theta(header)
    sizes = {
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "rms_norm_eps": _RMS_EPSILON,
        "max_position_embeddings": "context_length",
    }
    return {
        "hidden_act": "silu",
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": _kv_heads(header, heads),
        "head_dim": head_dim,
        **_read(header, sizes),
        "rope_theta": theta,
        "rope_scaling": read_rope_scaling(header, head_dim, theta),
        "vocab_size": _vocab_size(header),
    }


def _llama_config(header: GgufHeader) -> Config:
    biases = {
        "attention_bias": _has_bias(header, "attn_q"),
        "mlp_bias": _has_bias(header, "ffn_up"),
    }
    return {**_decoder_config(header), **biases}


def _qwen2_config(header: GgufHeader) -> Config:
    """llama.cpp reads all positions in every layer, as the published models do."""
    return {**_decoder_config(header), "use_sliding_window": False}


def _qwen3_config(header: GgufHeader) -> Config:
    return {**_qwen2_config(header), "attention_bias": _has_bias(header, "attn_q")}


def _gemma3_config(header: GgufHeader) -> Config:
    """Gemma 3 divides scores by the root of the head size, Gemma 3 27B by another number.

    llama.cpp recognises the latter by its 62 layers. Its defaults are those of transformers: every
    sixth layer reads all positions, the others rotate by base 10000.
    """
    config = _decoder_config(header)
    layers, heads = _size(header, "block_count"), _size(header, "attention.head_count")
    return {
        **config,
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": _theta(header, "rope.freq_base_swa"),
        "query_pre_attn_scalar": (
            _size(header, "embedding_length") // heads if layers == 62 else config["head_dim"]
        ),
        "attention_bias": _has_bias(header, "attn_q"),
        **_gemma_windows(header, layers),
    }


def _gemma_windows(header: GgufHeader, layers: int) -> Config:
    """The window of sliding layers, and the layers that have it."""
    window, pattern = header.own(_WINDOW), header.own(_WINDOW_PATTERN)
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
    _require_all_heads(header)
    sizes = {
        "n_head": "attention.head_count",
        "n_embd": "embedding_length",
        "n_inner": "feed_forward_length",
        "n_layer": "block_count",
        "n_positions": "context_length",
        "layer_norm_epsilon": _EPSILON,
    }
    more = {"activation_function": "gelu_new", "vocab_size": _vocab_size(header)}
    return {**_read(header, sizes), **more}


def _bloom_config(header: GgufHeader) -> Config:
    hidden = _size(header, "embedding_length")
    _require_all_heads(header)
    if _size(header, "feed_forward_length") != 4 * hidden:
        key = header.own("feed_forward_length")
        raise header.unsupported(key, f"it must be four times the width, {4 * hidden}")
    sizes = {
        "n_layer": "block_count",
        "n_head": "attention.head_count",
        "layer_norm_epsilon": _EPSILON,
    }
    return {"hidden_size": hidden, **_read(header, sizes), "vocab_size": _vocab_size(header)}


def _gpt_neox_config(header: GgufHeader) -> Config:
    heads, hidden = _size(header, "attention.head_count"), _size(header, "embedding_length")
    _require_all_heads(header)
    parallel = header.optional_bool(header.own("use_parallel_residual"))
    sizes = {
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "max_position_embeddings": "context_length",
        "layer_norm_eps": _EPSILON,
    }
    return {
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "num_attention_heads": heads,
        **_read(header, sizes),
        "rotary_pct": _size(header, "rope.dimension_count") * heads / hidden,
        "rope_theta": _theta(header),
        "use_parallel_residual": parallel is not False,
        "attention_bias": _has_bias(header, "attn_qkv"),
        "vocab_size": _vocab_size(header),
    }


def _require_all_heads(header: GgufHeader) -> None:
    """Refuse a number of key-value heads other than that of heads (GG0502)."""
    heads = _size(header, "attention.head_count")
    if _kv_heads(header, heads) != heads:
        key = header.own("attention.head_count_kv")
        raise header.unsupported(key, f"it must be the number of heads, {heads}")


def _head_dim(header: GgufHeader, hidden: int, heads: int) -> int:
    key = header.own("attention.key_length")
    if key in header.metadata:
        head_dim = header.positive_int(key)
    elif hidden % heads:
        what = f"is {hidden}, no multiple of the {heads} attention heads"
        raise header.bad_value(header.own("embedding_length"), what)
    else:
        head_dim = hidden // heads
    for full in map(header.own, ("attention.value_length", "rope.dimension_count")):
        if full in header.metadata and header.positive_int(full) != head_dim:
            raise header.unsupported(full, f"it must be the head size, {head_dim}")
    return head_dim


def _vocab_size(header: GgufHeader) -> int:
    """The stated size, else the rows of the table, which may be more than the tokens."""
    key = header.own("vocab_size")
    if key in header.metadata:
        return header.positive_int(key)
    table = header.tensors.get("token_embd.weight")
    if table is None:
        return len(header.strings("tokenizer.ggml.tokens"))
    if len(table.shape) != 2:
        what = f"tensor 'token_embd.weight' has the shape {table.shape}, and is no table"
        raise table.file.error(what)
    return table.shape[0]


_DECODER: Final[Mapping[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_DECODER_LAYER: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_HEAD_NORMS: Final = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_GEMMA_NORMS: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# BLOOM's; GPT-NeoX differs in the name of attention.
_FUSED_LAYER: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}

LLAMA: Final = GgufArchitecture(
    name="llama",
    model_type="llama",
    hf_class="LlamaForCausalLM",
    layers="model.layers",
    whole=_DECODER,
    layer=_DECODER_LAYER,
    settings=_DECODER_SETTINGS,
    config=_llama_config,
    restore={
        "attn_q": _rotary_rows("num_attention_heads"),
        "attn_k": _rotary_rows("num_key_value_heads"),
    },
)
QWEN2: Final = GgufArchitecture(
    name="qwen2",
    model_type="qwen2",
    hf_class="Qwen2ForCausalLM",
    layers="model.layers",
    whole=_DECODER,
    layer=_DECODER_LAYER,
    settings=_DECODER_SETTINGS,
    config=_qwen2_config,
)
QWEN3: Final = GgufArchitecture(
    name="qwen3",
    model_type="qwen3",
    hf_class="Qwen3ForCausalLM",
    layers="model.layers",
    whole=_DECODER,
    layer={**_DECODER_LAYER, **_HEAD_NORMS},
    settings=_DECODER_SETTINGS,
    config=_qwen3_config,
)
GEMMA3: Final = GgufArchitecture(
    name="gemma3",
    model_type="gemma3_text",
    hf_class="Gemma3ForCausalLM",
    layers="model.layers",
    whole=_DECODER,
    layer={**_DECODER_LAYER, **_HEAD_NORMS, **_GEMMA_NORMS},
    settings=_DECODER_SETTINGS | {_WINDOW, _WINDOW_PATTERN, "rope.freq_base_swa"},
    config=_gemma3_config,
    restore=dict.fromkeys(("output_norm", "attn_norm", *_HEAD_NORMS, *_GEMMA_NORMS), _LESS_ONE),
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
    settings=_SIZES | {_EPSILON},
    config=_gpt2_config,
    restore={
        f"{name}.weight": _TRANSPOSED for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
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
    layer=_FUSED_LAYER,
    settings=_SIZES | {_EPSILON},
    config=_bloom_config,
    restore={"attn_qkv": _fused_rows("n_head")},
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
        **_FUSED_LAYER,
        "attn_qkv": "attention.query_key_value",
        "attn_output": "attention.dense",
    },
    settings=_SIZES | {_EPSILON, "use_parallel_residual", "rope.dimension_count", "rope.freq_base"},
    config=_gpt_neox_config,
    restore={"attn_qkv": _fused_rows("num_attention_heads")},
)

ARCHITECTURES: Final[Mapping[str, GgufArchitecture]] = {
    item.name: item for item in (LLAMA, QWEN2, QWEN3, GEMMA3, GPT2, BLOOM, GPT_NEOX)
}
"""By ``general.architecture``."""
