"""A small model with an adapter, for the commands that the soak test disturbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import save_file

from tests.oracles.families import save_tokenizer
from tests.oracles.small_gguf import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    LAYERS,
    small_weights,
)

# Of the tokenizer that save_tokenizer writes, with some rows more than tokens.
_VOCABULARY: Final = 300
_RANK: Final = 4


def write_model(folder: Path) -> None:
    """A checkpoint as Hugging Face has it."""
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS, "head_dim": HEAD_DIM,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": _VOCABULARY,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    save_file(small_weights(_VOCABULARY), folder / "model.safetensors")
    save_tokenizer(folder)


def write_adapter(folder: Path) -> None:
    """An adapter of the query projections, as PEFT has it."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": _RANK, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(3)
    shapes = {"A": (_RANK, HIDDEN), "B": (HEADS * HEAD_DIM, _RANK)}
    at = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    tensors = {
        at.format(layer, side): rng.standard_normal(shape, np.float32)
        for layer in range(LAYERS)
        for side, shape in shapes.items()
    }
    save_file(tensors, folder / "adapter_model.safetensors")
