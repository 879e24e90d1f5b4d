"""Readers of checkpoints that are fuzzed: weights, configurations, tokenizers, adapters."""

from __future__ import annotations

import io
import json
import pickle
import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from graphgen.json_value import Json
from tests.fuzz.target import Target, json_seeds


def _checkpoint(path: Path) -> None:
    from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint

    open_checkpoint(path)


def _gguf() -> list[bytes]:
    from tests.oracles.small_gguf import write_small_model

    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.gguf"
        write_small_model(path)
        return [path.read_bytes()]


def _safetensors(path: Path) -> None:
    from graphgen.runtime.checkpoint.safetensors_file import SafetensorsFile

    SafetensorsFile(path)


def _tensors() -> list[bytes]:
    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
    text = json.dumps(header).encode()
    return [struct.pack("<Q", len(text)) + text + bytes(32)]


def _torch(path: Path) -> None:
    from graphgen.runtime.checkpoint.torch_file import TorchFile

    file = TorchFile(path)
    for name in file.tensors():
        file.read(name)


@cache
def _torch_files() -> list[bytes]:
    import torch

    state = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}
    made: list[bytes] = []
    for zipped in (True, False):
        file = io.BytesIO()
        torch.save(state, file, _use_new_zipfile_serialization=zipped)
        made.append(file.getvalue())
    return made


def _pickle(path: Path) -> None:
    from graphgen.runtime.checkpoint.torch_pickle import read_pickle

    read_pickle(path.read_bytes(), path, 0)


_CONFIG: Final[Json] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "tie_word_embeddings": True, "eos_token_id": [1, 2], "torch_dtype": "float32",
}  # fmt: skip
_MIXTURE: Final[Json] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 32,
    "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4,
    "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "vocab_size": 64, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 8],
                            "activation_scheme": "dynamic"},
}  # fmt: skip


def _config(path: Path) -> None:
    from graphgen.models.registry import read_model_config
    from graphgen.runtime.checkpoint.config_file import read_config

    read_model_config(read_config(path.parent))


def _index(path: Path) -> None:
    from graphgen.runtime.checkpoint.hf_folder import read_index

    read_index(path)


def _tokenizer(path: Path) -> None:
    from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(path.parent)
    tokenizer.decode(tokenizer.encode("the cat sat"))


def _tokenizers() -> list[bytes]:
    from tests.oracles.families import save_tokenizer

    with TemporaryDirectory() as folder:
        save_tokenizer(Path(folder))
        return [(Path(folder) / "tokenizer.json").read_bytes()]


@cache
def _tokenizer_folder() -> bytes:
    return _tokenizers()[0]


def _tokenizer_config(path: Path) -> None:
    (path.parent / "tokenizer.json").write_bytes(_tokenizer_folder())
    _tokenizer(path)


def _gguf_tokenizer(path: Path) -> None:
    from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

    load_tokenizer(path).encode("the cat sat")


def _template(path: Path) -> None:
    from graphgen.runtime.tokenizer.chat_template import render_chat

    turns = [{"role": "user", "content": "<a>"}, {"role": "assistant", "content": "b"}]
    text = path.read_bytes().decode("utf-8", "replace")
    render_chat(text, turns, bos_token="<s>", eos_token="</s>")


def _templates() -> list[bytes]:
    return [
        b"{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% endfor %}",
        b"{% set ns = namespace(n=0) %}{% for m in messages %}{% if loop.first %}{{ bos_token }}"
        b"{% endif %}{{ m['content'].split('a')[-1] }}{% endfor %}"
        b"{{ messages | tojson(indent=2) }}",
    ]


def _adapter(path: Path) -> None:
    from graphgen.runtime.checkpoint.config_file import read_json_object
    from graphgen.runtime.lora.adapter_file import read_adapter_config

    read_adapter_config(read_json_object(path), "adapter_config.json")


def _adapter_folder(path: Path) -> None:
    from graphgen.runtime.lora.adapter_file import open_adapter

    (path.parent / "adapter_config.json").write_text(json.dumps(_ADAPTER))
    open_adapter(path.parent)


_ADAPTER: Final[Json] = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8,
    "target_modules": ["q_proj", "v_proj"],
    "rank_pattern": {"q_proj": 2},
}


def _adapter_weights() -> list[bytes]:
    at = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    header = {
        f"{at}A.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        f"{at}B.weight": {"dtype": "F32", "shape": [3, 2], "data_offsets": [24, 48]},
    }
    text = json.dumps(header).encode()
    return [struct.pack("<Q", len(text)) + text + bytes(48)]


def _aligned(path: Path) -> None:
    from graphgen.runtime.weights.weight_reader import read_aligned

    read_aligned(path)


def _prepared() -> list[bytes]:
    import numpy as np

    from graphgen.runtime.weights.aligned_safetensors import write_aligned

    arrays = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.int8)}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rank.safetensors"
        write_aligned(path, arrays, iter(arrays.values()))
        return [path.read_bytes()]


def _listing(path: Path) -> None:
    from graphgen.runtime.checkpoint.listing import list_checkpoint

    list_checkpoint([path])


def _tree(path: Path) -> None:
    from graphgen.runtime.speculation.medusa_tree import read_tree

    read_tree(path, 3)


CHECKPOINTS: Final[dict[str, Target]] = {
    "gguf": Target("model.gguf", _checkpoint, _gguf),
    "safetensors": Target("model.safetensors", _safetensors, _tensors),
    "listing": Target("model.safetensors", _listing, _tensors),
    "torch file": Target("pytorch_model.bin", _torch, _torch_files, slow=True),
    "pickle": Target(
        "data.pkl", _pickle, lambda: [pickle.dumps({"a": [1, (2.5, "x")], "b": {"c": None}}, 2)]
    ),
    "configuration": Target("config.json", _config, json_seeds(_CONFIG, _MIXTURE)),
    "index": Target(
        "model.safetensors.index.json",
        _index,
        json_seeds({"metadata": {"total_size": 9}, "weight_map": {"a": "model-1.safetensors"}}),
    ),
    "tokenizer": Target("tokenizer.json", _tokenizer, _tokenizers),
    "tokenizer configuration": Target(
        "tokenizer_config.json",
        _tokenizer_config,
        json_seeds(
            {
                "chat_template": "{{ messages }}",
                "bos_token": {"content": "a", "special": True},
                "eos_token": "b",
                "add_bos_token": True,
                "model_max_length": 1e30,
            }
        ),
    ),
    "gguf tokenizer": Target("model.gguf", _gguf_tokenizer, _gguf),
    "template": Target("template.jinja", _template, _templates),
    "adapter": Target("adapter_config.json", _adapter, json_seeds(_ADAPTER)),
    "adapter weights": Target("adapter_model.safetensors", _adapter_folder, _adapter_weights),
    "prepared weights": Target("rank.safetensors", _aligned, _prepared),
    "medusa tree": Target("tree.json", _tree, json_seeds([[0], [0, 0], [1], [0, 1], [0, 0, 0]])),
}
