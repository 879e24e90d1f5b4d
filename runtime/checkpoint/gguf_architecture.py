"""GGUF architectures: tensor names, value transforms and settings shared by many of them.

Names on the left are llama.cpp's, as in the table ``MODEL_TENSORS`` of the gguf package. Value
transforms undo what llama.cpp's converter does to the model of that name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from graphgen.limits import LAYERS, bound, stated
from graphgen.numbers import MOST_COUNT
from graphgen.runtime.checkpoint.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf_rope import ROPE_FACTORS_TENSOR, ROPE_KEYS, read_rope_scaling
from graphgen.runtime.checkpoint.interfaces import Array

_TENSOR_NAME: Final = re.compile(
    r"(?:blk\.(?P<layer>0|[1-9][0-9]*)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)"
)
Config = dict[str, object]
# Modules of a Hugging Face layer that the file has in one, and the rows of each.
FusedParts = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Restore:
    """One inverse transform of a stored tensor.

    Attributes:
        values: (stored values, number of heads) -> Hugging Face's values; 1 head where
            :attr:`heads` is empty.
        heads: the configuration's key for the number of heads that rows belong to, or empty.
        parts: the number of equal parts the rows of a head come in.
        shape: the stored shape -> Hugging Face's, where rows do not stay rows.
    """

    values: Callable[[Array, int], Array]
    heads: str = ""
    parts: int = 1
    shape: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None


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


def rotary_rows(heads: str) -> Restore:
    """Rows that llama.cpp rotates by neighbors; ``heads`` as of :class:`Restore`."""
    return Restore(_halves_of_heads, heads, parts=2)


ROTARY: Final = {
    "attn_q": rotary_rows("num_attention_heads"),
    "attn_k": rotary_rows("num_key_value_heads"),
}
"""Of the queries and keys that llama.cpp's converter sorts for such a rotation."""


def fused_rows(heads: str) -> Restore:
    """Rows of all of q, of k and of v; ``heads`` as of :class:`Restore`."""
    return Restore(_head_by_head, heads, parts=3)


LESS_ONE: Final = Restore(_less_one)
# [out, in] to [in, out], the layout of ``Conv1D``'s weight.
TRANSPOSED: Final = Restore(
    lambda values, _: np.ascontiguousarray(values.T), shape=lambda shape: shape[::-1]
)
# A matrix of one row, which llama.cpp's converter makes a vector.
ONE_ROW: Final = Restore(
    lambda values, _: values.reshape(1, -1), shape=lambda shape: (1, math.prod(shape))
)


_WHOLE_HEADS: Final = ("attention.value_length", "rope.dimension_count")
SIZES: Final = frozenset(
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
EPSILON, RMS_EPSILON = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"
# Settings of decoders with layer norms, by Hugging Face's names.
LAYER_NORM_SIZES: Final = {
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "layer_norm_eps": EPSILON,
}
WINDOW, WINDOW_PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
DECODER_SETTINGS: Final = (
    SIZES
    | ROPE_KEYS
    | {
        "attention.key_length",
        "attention.value_length",
        RMS_EPSILON,
        "rope.dimension_count",
        "rope.freq_base",
    }
)
DECODER_NAMES: Final[Mapping[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
DECODER_LAYER: Final[Mapping[str, str]] = {
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
HEAD_NORMS: Final = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA_NORMS: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# BLOOM's; GPT-NeoX differs in the name of attention.
FUSED_LAYER: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}


@dataclass(frozen=True)
class GgufArchitecture:
    """One architecture; the defaults are those of a decoder as Llama's.

    Attributes:
        name: ``general.architecture``.
        model_type: Hugging Face's ``model_type``.
        hf_class: Hugging Face's class, for the key ``architectures``.
        config: the rest of the configuration under Hugging Face's names.
        layers: the prefix of Hugging Face's names of a layer's tensors, before its number.
        whole: llama.cpp's name to Hugging Face's of tensors outside of layers, without the ending.
        layer: likewise of a layer's, without the prefix. A llama.cpp name with its ending stands
            for a Hugging Face name with its own.
        settings: the metadata keys that ``config`` translates, without the architecture in front.
        restore: by llama.cpp's name with its ending, or without it for weight and bias.
        fits: true for the files of this model, where several have the same ``name``.
        fused: (configuration) -> by llama.cpp's name, the modules that a layer of the file is.
        in_config: tensors that ``config`` has translated.
    """

    name: str
    model_type: str
    hf_class: str
    config: Callable[[GgufHeader], Config]
    layers: str = "model.layers"
    whole: Mapping[str, str] = field(default_factory=lambda: DECODER_NAMES)
    layer: Mapping[str, str] = field(default_factory=lambda: DECODER_LAYER)
    settings: frozenset[str] = DECODER_SETTINGS
    restore: Mapping[str, Restore] = field(default_factory=dict[str, Restore])
    fits: Callable[[GgufHeader], bool] = lambda header: True
    fused: Callable[[Config], Mapping[str, FusedParts]] = lambda config: {}
    in_config: frozenset[str] = frozenset({ROPE_FACTORS_TENSOR})

    def hf_name(self, name: str, module: str = "") -> str:
        """The Hugging Face name of the GGUF tensor ``name``; ``name`` itself if there is none.

        Args:
            name: of the file.
            module: in the place of the one that the table says.
        """
        match = _TENSOR_NAME.fullmatch(name)
        if match is None:
            return name
        layer, part, kind = match["layer"], match["part"], match["kind"]
        if layer is None:
            return f"{self.whole[part]}.{kind}" if part in self.whole else name
        full = self.layer.get(f"{part}.{kind}")
        known = module or self.layer.get(part)
        own = full or (f"{known}.{kind}" if known else "")
        return f"{self.layers}.{layer}.{own}" if own else name

    def restore_of(self, name: str) -> Restore | None:
        """The inverse transform of the GGUF tensor ``name``, if it needs one."""
        match = _TENSOR_NAME.fullmatch(name)
        if match is None:
            return None
        part = match["part"]
        return self.restore.get(f"{part}.{match['kind']}", self.restore.get(part))


def part_of_name(name: str) -> str:
    """llama.cpp's name of a layer's tensor without layer and ending; empty for another name."""
    match = _TENSOR_NAME.fullmatch(name)
    return match["part"] if match is not None and match["layer"] is not None else ""


def read_settings(header: GgufHeader, keys: Mapping[str, str]) -> Config:
    """Settings by Hugging Face's name; epsilons are numbers, all others sizes."""
    read: Config = {}
    for hf_name, key in keys.items():
        full = header.own(key)
        is_number = key in (EPSILON, RMS_EPSILON)
        read[hf_name] = header.positive_float(full) if is_number else header.positive_int(full)
    return read


def size_of(header: GgufHeader, key: str) -> int:
    """The size under a key of the architecture (GG0503)."""
    size = header.positive_int(header.own(key))
    most = LAYERS if key == "block_count" else MOST_COUNT
    if size > bound(most):
        raise header.unsupported(header.own(key), f"{stated(most)} are read")
    return size


def rope_base(header: GgufHeader, key: str = "rope.freq_base") -> float:
    """The base of the rotary frequencies."""
    # The default is llama.cpp's.
    return header.positive_float(header.own(key), 10000.0)


def kv_heads(header: GgufHeader, heads: int) -> int:
    """The number of key-value heads, by default that of ``heads``."""
    key = header.own("attention.head_count_kv")
    return header.positive_int(key) if key in header.metadata else heads


def has_bias(header: GgufHeader, part: str) -> bool:
    """True if the first layer's ``part`` has a bias."""
    return f"blk.0.{part}.bias" in header.tensors


# (file, size of the rotated part of a head, base) -> ``rope_scaling``.
ReadScaling = Callable[[GgufHeader, int, float], Config | None]


def biases(header: GgufHeader) -> Config:
    """The switches of attention's biases and of the MLP's."""
    return {
        "attention_bias": has_bias(header, "attn_q"),
        "mlp_bias": has_bias(header, "ffn_up"),
    }


def decoder_config(
    header: GgufHeader, *, partial: bool = False, scaling: ReadScaling = read_rope_scaling
) -> Config:
    """The settings that Llama, Qwen and Gemma share.

    Args:
        header: of the file.
        partial: a part of each head may be rotated.
        scaling: how positions are scaled.
    """
    heads, hidden = size_of(header, "attention.head_count"), size_of(header, "embedding_length")
    head_dim, theta = head_dim_of(header, hidden, heads, partial=partial), rope_base(header)
    sizes = {
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "rms_norm_eps": RMS_EPSILON,
        "max_position_embeddings": "context_length",
    }
    rotated = rotated_size(header, head_dim)
    return {
        "hidden_act": "silu",
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads(header, heads),
        "head_dim": head_dim,
        **read_settings(header, sizes),
        "rope_theta": theta,
        "rope_scaling": scaling(header, rotated, theta),
        **({"partial_rotary_factor": rotated / head_dim} if partial else {}),
        "vocab_size": vocab_size(header),
    }


def rotated_size(header: GgufHeader, head_dim: int) -> int:
    """The rotated elements of a head, all of them if the file does not say it."""
    key = header.own("rope.dimension_count")
    return header.positive_int(key) if key in header.metadata else head_dim


def every_fourth_plain(header: GgufHeader) -> list[int]:
    """``no_rope_layers`` as llama.cpp has it: 0 for every fourth layer, which rotates no heads."""
    return [int((layer + 1) % 4 != 0) for layer in range(size_of(header, "block_count"))]


def qkv_parts(module: str, rows: int, kv_rows: int) -> FusedParts:
    """All rows of q, then of k, then of v."""
    counts = ("q", rows), ("k", kv_rows), ("v", kv_rows)
    return tuple([(f"{module}.{name}_proj", count) for name, count in counts])


def require_all_heads(header: GgufHeader) -> None:
    """Refuse a number of key-value heads other than that of heads (GG0502)."""
    heads = size_of(header, "attention.head_count")
    if kv_heads(header, heads) != heads:
        key = header.own("attention.head_count_kv")
        raise header.unsupported(key, f"it must be the number of heads, {heads}")


def head_dim_of(header: GgufHeader, hidden: int, heads: int, *, partial: bool = False) -> int:
    """The size of a head, all of which is rotated unless ``partial`` (GG0502, GG0503)."""
    key = header.own("attention.key_length")
    if key in header.metadata:
        head_dim = header.positive_int(key)
    elif hidden % heads:
        what = f"is {hidden}, no multiple of the {heads} attention heads"
        raise header.bad_value(header.own("embedding_length"), what)
    else:
        head_dim = hidden // heads
    whole = ("attention.value_length",) if partial else _WHOLE_HEADS
    for full in map(header.own, whole):
        if full in header.metadata and header.positive_int(full) != head_dim:
            raise header.unsupported(full, f"it must be the head size, {head_dim}")
    return head_dim


def vocab_size(header: GgufHeader) -> int:
    """The stated size, else the rows of the table, which may be more than the tokens."""
    key = header.own("vocab_size")
    if key in header.metadata:
        return header.positive_int(key)
    table = header.tensors.get("token_embd.weight")
    if table is None:
        return len(header.strings("tokenizer.ggml.tokens"))
    if len(table.shape) != 2:
        what = f"tensor 'token_embd.weight' has the shape {table.shape}, and is not a matrix"
        raise table.file.error(what)
    return table.shape[0]
