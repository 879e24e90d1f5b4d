"""Turn the metadata of a GGUF file into a Hugging Face configuration, refusing what it cannot say.

Every ``llama.*`` key is either translated, known to change nothing, or an error: a key that is
skipped could change what the model computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphgen.errors import GraphgenError
from runtime.checkpoint.gguf_header import GgufHeader, GgufValue
from runtime.checkpoint.gguf_metadata import Metadata
from runtime.checkpoint.gguf_rope import ROPE_KEYS, read_rope_scaling

SUPPORTED_ARCHITECTURES: Final = ("llama",)
"""Values of ``general.architecture`` that can be read."""

_TRANSLATED: Final = frozenset(
    {
        "vocab_size",
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.dimension_count",
        "rope.freq_base",
    }
)
# Keys that may be there as long as they say what a Llama model does anyway.
_REQUIRED_VALUES: Final[Mapping[str, GgufValue]] = {
    "attention.causal": True,
    "attention.sliding_window": 0,
    "expert_count": 0,
    "expert_used_count": 0,
    "use_parallel_residual": False,
}
# Describes how the file was converted, not what the model computes.
_IGNORED: Final = frozenset({"tensor_data_layout"})


def read_config(header: GgufHeader) -> dict[str, object]:
    """The Hugging Face configuration of the model in a GGUF file.

    Raises:
        GraphgenError: GG0501 for an architecture that is not supported, GG0502 for a setting that
            cannot be translated, GG0503 for an impossible value, GG0601 for a missing one.
    """
    metadata = Metadata(header.file.path, header.metadata)
    architecture = metadata.string("general.architecture")
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise GraphgenError(
            "GG0501",
            f"the GGUF file holds architecture '{architecture}'; "
            f"supported: {', '.join(SUPPORTED_ARCHITECTURES)}",
            where=str(header.file.path),
            help="use the model's safetensors checkpoint instead",
        )
    _require_whole_model(metadata)
    _refuse_unknown_keys(metadata)
    return _llama_config(metadata, header)


def _require_whole_model(metadata: Metadata) -> None:
    if metadata.get("general.type") not in (None, "model"):
        raise metadata.unsupported("general.type", "only whole models can be read")
    if metadata.get("split.count") not in (None, 0, 1):
        raise metadata.unsupported(
            "split.count", "a model in several GGUF files cannot be read; merge them first"
        )


def _refuse_unknown_keys(metadata: Metadata) -> None:
    known = _TRANSLATED | ROPE_KEYS | _IGNORED
    for key in metadata.keys_under("llama."):
        full = f"llama.{key}"
        if key in _REQUIRED_VALUES:
            if metadata.get(full) != _REQUIRED_VALUES[key]:
                raise metadata.unsupported(full, "this kind of Llama model is not supported")
        elif key not in known:
            raise metadata.unsupported(
                full, "this setting is not known, and it may change what the model computes"
            )


def _llama_config(metadata: Metadata, header: GgufHeader) -> dict[str, object]:
    heads = metadata.positive_int("llama.attention.head_count")
    kv_key = "llama.attention.head_count_kv"
    hidden = metadata.positive_int("llama.embedding_length")
    theta_key = "llama.rope.freq_base"
    head_dim = _head_dim(metadata, hidden, heads)
    # llama.cpp's value for a file that does not say.
    theta = metadata.positive_float(theta_key) if theta_key in metadata else 10000.0
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": metadata.positive_int("llama.feed_forward_length"),
        "num_hidden_layers": metadata.positive_int("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.positive_int(kv_key) if kv_key in metadata else heads,
        "head_dim": head_dim,
        "rms_norm_eps": metadata.positive_float("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": read_rope_scaling(metadata, header, head_dim, theta),
        "max_position_embeddings": metadata.positive_int("llama.context_length"),
        "vocab_size": _vocab_size(metadata),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in header.tensors,
        "bos_token_id": metadata.optional_int("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.optional_int("tokenizer.ggml.eos_token_id"),
    }


def _head_dim(metadata: Metadata, hidden: int, heads: int) -> int:
    key = "llama.attention.key_length"
    if key in metadata:
        head_dim = metadata.positive_int(key)
    elif hidden % heads:
        raise metadata.bad_value(
            "llama.embedding_length", f"is {hidden}, no multiple of the {heads} attention heads"
        )
    else:
        head_dim = hidden // heads
    for other in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if other in metadata and metadata.positive_int(other) != head_dim:
            raise metadata.unsupported(other, f"it must be the head size, {head_dim}")
    return head_dim


def _vocab_size(metadata: Metadata) -> int:
    if "llama.vocab_size" in metadata:
        return metadata.positive_int("llama.vocab_size")
    return len(metadata.strings("tokenizer.ggml.tokens"))
