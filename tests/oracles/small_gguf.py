"""Small Llama models as GGUF files, written with the gguf package's own writer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

Value: TypeAlias = bool | int | float | str | list[str] | list[int] | list[float]
Array: TypeAlias = npt.NDArray[np.generic]

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INTERMEDIATE, LAYERS = 4, 2, 8, 32, 64, 2
CORPUS = (
    "It's 2024: don't panic, we'll count to 1000000!\n\n  The llama said “naïve” — 日本語 한국어 "
    "🦙.\tYou've got 3.14159 and 12 tokens, THEY'RE fine.  "
)
SPECIAL = ("<|end|>", "<|begin|>")


def small_vocabulary() -> tuple[list[str], list[str]]:
    """Tokens (special ones first) and merges of a byte-level BPE trained on a few words."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator([CORPUS] * 3, trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [" ".join(merge) for merge in model["merges"]]


def small_metadata() -> dict[str, Value]:
    """The metadata of a small Llama model with a SmolLM-like tokenizer."""
    tokens, merges = small_vocabulary()
    return {
        "llama.block_count": LAYERS,
        "llama.context_length": 64,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INTERMEDIATE,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
    }


def small_weights(vocab: int, *, bias: bool = False, tied: bool = True) -> dict[str, Array]:
    """Random f32 weights of the small model, under their Hugging Face names and in that layout."""
    rng = np.random.default_rng(7)
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    if not tied:
        shapes["lm_head.weight"] = (vocab, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        shapes[f"{at}.input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{at}.post_attention_layernorm.weight"] = (HIDDEN,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (rows, HIDDEN)
            if bias:
                shapes[f"{at}.self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{at}.self_attn.o_proj.weight"] = (HIDDEN, q)
        for name in ("gate", "up"):
            shapes[f"{at}.mlp.{name}_proj.weight"] = (INTERMEDIATE, HIDDEN)
        shapes[f"{at}.mlp.down_proj.weight"] = (HIDDEN, INTERMEDIATE)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def to_gguf(name: str, weight: Array) -> tuple[str, Array]:
    """The GGUF name of a Hugging Face tensor, and its values in llama.cpp's row order."""
    stem, kind = name.rsplit(".", 1)
    prefix = ""
    if stem.startswith("model.layers."):
        _, _, layer, stem = stem.split(".", 3)
        prefix = f"blk.{layer}."
    part = _PARTS[stem]
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(part)
    if heads:
        halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        weight = halves.swapaxes(1, 2).reshape(weight.shape)
    return f"{prefix}{part}.{kind}", np.ascontiguousarray(weight)


def write_gguf(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Mapping[str, Array],
    *,
    kinds: Mapping[str, GGMLQuantizationType] | None = None,
    architecture: str = "llama",
) -> Path:
    """Write a GGUF file of ``tensors`` (GGUF names); ``kinds`` says which hold packed bytes."""
    writer = GGUFWriter(path, architecture)
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, values in tensors.items():
        writer.add_tensor(name, values, raw_dtype=(kinds or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: GGUFWriter, key: str, value: Value) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_key_value(key, value, GGUFValueType.UINT32)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)


def write_small_model(
    path: Path,
    changes: Mapping[str, Value | None] | None = None,
    *,
    more: Mapping[str, Array] | None = None,
    bias: bool = False,
    tied: bool = True,
) -> dict[str, Array]:
    """Write the small model as f32 GGUF and return its weights as Hugging Face has them.

    Args:
        path: the file to write.
        changes: metadata to set, or to leave out where the value is None.
        more: further tensors, under GGUF names.
        bias: whether q, k and v have biases.
        tied: whether the output uses the embedding.
    """
    metadata = {**small_metadata(), **(changes or {})}
    tokens = metadata["tokenizer.ggml.tokens"]
    weights = small_weights(len(tokens) if isinstance(tokens, list) else 8, bias=bias, tied=tied)
    tensors = dict(to_gguf(name, weight) for name, weight in weights.items())
    kept = {key: value for key, value in metadata.items() if value is not None}
    write_gguf(path, kept, {**tensors, **(more or {})})
    return weights
