"""The configuration of each architecture, from the settings that llama.cpp's converter writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf.gguf_metadata import Metadata
from graphgen.runtime.checkpoint.gguf.gguf_rope import ROPE_KEYS, read_rope_scaling
from graphgen.runtime.checkpoint.mapped_file import unreadable

Config = dict[str, object]


@dataclass(frozen=True)
class Family:
    """How one architecture is configured.

    Attributes:
        keys: the settings that are translated, without the architecture in front.
        config: the configuration under Hugging Face's names.
    """

    keys: frozenset[str]
    config: Callable[[Metadata, GgufHeader], Config]


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
_DECODER: Final = (
    _SIZES
    | ROPE_KEYS
    | {
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.dimension_count",
        "rope.freq_base",
    }
)
_WITH_BIASES: Final = _SIZES | {"attention.layer_norm_epsilon"}


def _size(metadata: Metadata, key: str) -> int:
    return metadata.positive_int(metadata.own(key))


def _kv_heads(metadata: Metadata, heads: int) -> int:
    key = metadata.own("attention.head_count_kv")
    return metadata.positive_int(key) if key in metadata else heads


def _theta(metadata: Metadata) -> float:
    key = metadata.own("rope.freq_base")
    # llama.cpp's value for a file that does not say.
    return metadata.positive_float(key) if key in metadata else 10000.0


def _decoder(metadata: Metadata, header: GgufHeader) -> Config:
    """What Llama, Qwen and Gemma are told alike."""
    heads, hidden = _size(metadata, "attention.head_count"), _size(metadata, "embedding_length")
    head_dim, theta = _head_dim(metadata, hidden, heads), _theta(metadata)
    return {
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": _size(metadata, "feed_forward_length"),
        "num_hidden_layers": _size(metadata, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _kv_heads(metadata, heads),
        "head_dim": head_dim,
        "rms_norm_eps": metadata.positive_float(metadata.own("attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": read_rope_scaling(metadata, header, head_dim, theta),
        "max_position_embeddings": _size(metadata, "context_length"),
        "vocab_size": _vocab_size(metadata, header),
    }


def _llama(metadata: Metadata, header: GgufHeader) -> Config:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **_decoder(metadata, header),
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in header.tensors,
    }


def _qwen2(metadata: Metadata, header: GgufHeader) -> Config:
    """llama.cpp reads all positions in every layer, as the published models do."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        **_decoder(metadata, header),
        "use_sliding_window": False,
    }


def _qwen3(metadata: Metadata, header: GgufHeader) -> Config:
    return {
        **_qwen2(metadata, header),
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
    }


def _gemma3(metadata: Metadata, header: GgufHeader) -> Config:
    """Scores are divided by the root of the head size, in Gemma 3 27B by another number.

    llama.cpp tells that one by its 62 layers, and takes the same constants as transformers for what
    a file does not say: every sixth layer reads all positions, the others turn by 10000.
    """
    config = _decoder(metadata, header)
    layers, heads = _size(metadata, "block_count"), _size(metadata, "attention.head_count")
    theta = metadata.own("rope.freq_base_swa")
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        **config,
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": metadata.positive_float(theta) if theta in metadata else 10000.0,
        "query_pre_attn_scalar": (
            _size(metadata, "embedding_length") // heads if layers == 62 else config["head_dim"]
        ),
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        **_gemma_windows(metadata, layers),
    }


def _gemma_windows(metadata: Metadata, layers: int) -> Config:
    """Which layers have a window, and of how many positions."""
    window, pattern = (metadata.own(f"attention.sliding_window{end}") for end in ("", "_pattern"))
    if window not in metadata:
        return {"layer_types": ["full_attention"] * layers}
    slides = metadata.get(pattern)
    found: Config = {"sliding_window": metadata.positive_int(window)}
    if slides is None:
        return {**found, "sliding_window_pattern": 6}
    if not isinstance(slides, np.ndarray):
        return {**found, "sliding_window_pattern": metadata.positive_int(pattern)}
    if slides.shape != (layers,):
        raise metadata.bad_value(pattern, f"is about {len(slides)} layers of {layers}")
    kinds = ["sliding_attention" if one else "full_attention" for one in slides.tolist()]
    return {**found, "layer_types": kinds}


def _gpt2(metadata: Metadata, header: GgufHeader) -> Config:
    heads = _size(metadata, "attention.head_count")
    _require_all_heads(metadata, heads)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_embd": _size(metadata, "embedding_length"),
        "n_inner": _size(metadata, "feed_forward_length"),
        "n_layer": _size(metadata, "block_count"),
        "n_head": heads,
        "n_positions": _size(metadata, "context_length"),
        "layer_norm_epsilon": _epsilon(metadata),
        "vocab_size": _vocab_size(metadata, header),
    }


def _bloom(metadata: Metadata, header: GgufHeader) -> Config:
    heads, hidden = _size(metadata, "attention.head_count"), _size(metadata, "embedding_length")
    _require_all_heads(metadata, heads)
    if _size(metadata, "feed_forward_length") != 4 * hidden:
        key = metadata.own("feed_forward_length")
        raise metadata.unsupported(key, f"it must be four times the width, {4 * hidden}")
    return {
        "architectures": ["BloomForCausalLM"],
        "model_type": "bloom",
        "hidden_size": hidden,
        "n_layer": _size(metadata, "block_count"),
        "n_head": heads,
        "layer_norm_epsilon": _epsilon(metadata),
        "vocab_size": _vocab_size(metadata, header),
    }


def _gpt_neox(metadata: Metadata, header: GgufHeader) -> Config:
    heads, hidden = _size(metadata, "attention.head_count"), _size(metadata, "embedding_length")
    _require_all_heads(metadata, heads)
    parallel = metadata.optional_bool(metadata.own("use_parallel_residual"))
    return {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "intermediate_size": _size(metadata, "feed_forward_length"),
        "num_hidden_layers": _size(metadata, "block_count"),
        "num_attention_heads": heads,
        "rotary_pct": _size(metadata, "rope.dimension_count") * heads / hidden,
        "rope_theta": _theta(metadata),
        "max_position_embeddings": _size(metadata, "context_length"),
        "layer_norm_eps": _epsilon(metadata),
        "use_parallel_residual": parallel is not False,
        "attention_bias": "blk.0.attn_qkv.bias" in header.tensors,
        "vocab_size": _vocab_size(metadata, header),
    }


def _epsilon(metadata: Metadata) -> float:
    return metadata.positive_float(metadata.own("attention.layer_norm_epsilon"))


def _require_all_heads(metadata: Metadata, heads: int) -> None:
    """Models without key-value heads of their own may say how many there are."""
    if _kv_heads(metadata, heads) != heads:
        key = metadata.own("attention.head_count_kv")
        raise metadata.unsupported(key, f"it must be the number of heads, {heads}")


def _head_dim(metadata: Metadata, hidden: int, heads: int) -> int:
    key = metadata.own("attention.key_length")
    if key in metadata:
        head_dim = metadata.positive_int(key)
    elif hidden % heads:
        raise metadata.bad_value(
            metadata.own("embedding_length"),
            f"is {hidden}, no multiple of the {heads} attention heads",
        )
    else:
        head_dim = hidden // heads
    for other in ("attention.value_length", "rope.dimension_count"):
        full = metadata.own(other)
        if full in metadata and metadata.positive_int(full) != head_dim:
            raise metadata.unsupported(full, f"it must be the head size, {head_dim}")
    return head_dim


def _vocab_size(metadata: Metadata, header: GgufHeader) -> int:
    """What the file says, or the rows of its table: there may be more of them than tokens."""
    key = metadata.own("vocab_size")
    if key in metadata:
        return metadata.positive_int(key)
    table = header.tensors.get("token_embd.weight")
    if table is None:
        return len(metadata.strings("tokenizer.ggml.tokens"))
    if len(table.shape) != 2:
        what = f"tensor 'token_embd.weight' has the shape {table.shape}, and is no table"
        raise unreadable(table.file.path, what)
    return table.shape[0]


FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family(_DECODER, _llama),
    "qwen2": Family(_DECODER, _qwen2),
    "qwen3": Family(_DECODER, _qwen3),
    "gemma3": Family(
        _DECODER
        | {
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "rope.freq_base_swa",
        },
        _gemma3,
    ),
    "gpt2": Family(_WITH_BIASES, _gpt2),
    "bloom": Family(_WITH_BIASES, _bloom),
    "gptneox": Family(
        _WITH_BIASES | {"use_parallel_residual", "rope.dimension_count", "rope.freq_base"},
        _gpt_neox,
    ),
}
"""By ``general.architecture``."""
