"""A small random Llama with random adapters, and the same model with one of them merged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.ir import Entry, Role, dtype
from graphgen.models import build
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.session.adapter_slots import AdapterSlots
from graphgen.runtime.session.session import Logits, Session
from graphgen.runtime.weights.rank_weights import read_weight
from tests.oracles.sessions import open_session

ROWS, RANK = 3, 4
# Nine heads over three: no number of ranks but three divides both.
CONFIG: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 72,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "vocab_size": 130,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8]]
Adapter = dict[str, Array]


def write_model(folder: Path, **changes: object) -> None:
    """The model as a checkpoint folder."""
    settings = {**CONFIG, **changes}
    rng = np.random.default_rng(5)
    weights = {
        row.name: 0.1 * rng.standard_normal(row.logical.dims).astype(np.float32)
        for row in build(settings, dtype("f32")).entries(Role.WEIGHT)
    }
    for name, array in weights.items():
        if name.endswith("norm.weight"):
            array += 1
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(weights, folder / "model.safetensors")


def settings(**options: object) -> CompileConfig:
    """For three rows of up to 32 tokens in f32."""
    return CompileConfig.of(**{"dtype": "f32", **options}).serving(batch=ROWS, max_len=32)


def with_adapters(slots: int = 2, **options: object) -> CompileConfig:
    """The same with slots of rank 4."""
    return settings(max_loras=slots, max_lora_rank=RANK, **options)


def random_adapter(slots: AdapterSlots, seed: int, rank: int = RANK) -> Adapter:
    """A and B of every projection, scaled already."""
    rng = np.random.default_rng(seed)
    made: Adapter = {}
    for name, ((_, inputs), (outputs, _)) in slots.targets.items():
        made[f"{name}.lora_A"] = 0.3 * rng.standard_normal((rank, inputs)).astype(np.float32)
        made[f"{name}.lora_B"] = 0.3 * rng.standard_normal((outputs, rank)).astype(np.float32)
    return made


def merged_session(folder: Path, adapter: Adapter, config: CompileConfig) -> Session:
    """The model with ``W + B A`` in the place of each W (PEFT's merge), without adapters."""

    def read(checkpoint: Checkpoint, row: Entry) -> Array:
        array = read_weight(checkpoint, row)
        name = row.name.removesuffix(".weight")
        if f"{name}.lora_A" not in adapter:
            return array
        return array + adapter[f"{name}.lora_B"] @ adapter[f"{name}.lora_A"]

    return open_session(folder, config, read)


def script(session: Session) -> list[Logits]:
    """A ragged prefill, then decode steps, one of them with an idle row."""
    everything = [session.prefill(PROMPTS)]
    for step, idle in enumerate(([True] * 3, [True, False, True])):
        everything.append(session.decode([7 + step, 8, 9], idle)[np.array(idle)])
    return everything
