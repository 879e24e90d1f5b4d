"""Files of adapters: PEFT's and NxD's, read alike; what does not fit is refused by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from graphgen.errors import GraphgenError
from graphgen.runtime.lora.adapter_file import Adapter, open_adapter
from tests.oracles.lora_adapters import (
    Factors,
    peft_config,
    peft_tensors,
    random_factors,
    save_adapter,
    save_nxd,
    save_peft,
)

LAYER = "model.layers.0"
NAMED = f"base_model.model.{LAYER}.self_attn.q_proj"


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "vocab_size": 40,
    }
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes))


@pytest.fixture(scope="module")
def factors(model: PreTrainedModel) -> Factors:
    return random_factors(model, ["q_proj", "down_proj", "embed_tokens"])


def assert_holds(adapter: Adapter, factors: Factors, scale: Callable[[str], float]):
    assert set(adapter.pairs) == set(factors)
    for name, (a, b) in factors.items():
        for _ in range(2):  # A second look finds the same: nothing is scaled in place.
            read_a, read_b = adapter.factors(name)
            np.testing.assert_array_equal(read_a, a.numpy())
            np.testing.assert_array_equal(read_b, b.numpy() * np.float32(scale(name)))


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_link_out_of_the_folder_is_refused(
    model: PreTrainedModel, factors: Factors, tmp_path: Path, name: str
):
    config = peft_config(factors, lora_alpha=12)
    folder = save_peft(tmp_path / "a", peft_tensors(model, factors), config, "safetensors")
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(GraphgenError, match=f"{name} is a symbolic link out of the") as caught:
        open_adapter(folder)
    assert caught.value.code == "GG0601"
    # As in the hub's cache.
    (tmp_path / "blobs").mkdir()
    (tmp_path / name).rename(tmp_path / "blobs" / "x")
    (folder / name).unlink()
    (folder / name).symlink_to("../../blobs/x")
    (tmp_path / "snapshots").mkdir()
    folder.rename(tmp_path / "snapshots" / "revision")
    assert_holds(open_adapter(tmp_path / "snapshots" / "revision"), factors, lambda _: 3.0)


@pytest.mark.parametrize("form", ["safetensors", "bin", "pt"])
def test_a_folder_of_peft(model: PreTrainedModel, factors: Factors, tmp_path: Path, form: str):
    folder = save_peft(
        tmp_path / "a", peft_tensors(model, factors), peft_config(factors, lora_alpha=12), form
    )
    adapter = open_adapter(folder)
    assert_holds(adapter, factors, lambda _: 3.0)
    assert adapter.rank == 4
    assert adapter.pairs["model.embed_tokens"].embedding


def test_a_file_of_nxd_holds_its_configuration(factors: Factors, tmp_path: Path):
    linear = {name: pair for name, pair in factors.items() if "embed" not in name}
    adapter = open_adapter(save_nxd(tmp_path / "adapter.pt", linear))
    assert_holds(adapter, linear, lambda _: 2.0)
    assert set(adapter.config.targets) == {"q_proj", "down_proj"}
    (tmp_path / "folder").mkdir()
    save_nxd(tmp_path / "folder" / "adapter_model.pt", linear, use_rslora=True)
    assert_holds(open_adapter(tmp_path / "folder"), linear, lambda _: 4.0)


def test_joined_query_key_value_of_nxd(tmp_path: Path):
    state: dict[str, object] = {
        "lora_config": {"lora_rank": 2, "lora_alpha": 2, "target_modules": ["qkv_proj"]},
        "layers.0.qkv_proj.lora_A.weight": torch.ones(2, 8),
    }
    for letter, rows in zip("qkv", (8, 4, 4), strict=True):
        state[f"layers.0.qkv_proj.lora_B.weight_{letter}"] = torch.full((rows, 2), 1.0 * rows)
    torch.save(state, tmp_path / "a.pt")
    adapter = open_adapter(tmp_path / "a.pt")
    assert set(adapter.pairs) == {f"layers.0.{x}_proj" for x in "qkv"}
    assert [pair.b.shape for pair in adapter.pairs.values()] == [(8, 2), (4, 2), (4, 2)]


def test_ranks_and_alphas_by_pattern(model: PreTrainedModel, tmp_path: Path):
    """The first pattern that the end of a name matches, as PEFT has it; then alpha / sqrt(rank)."""
    factors = random_factors(model, ["q_proj", "up_proj"], {"q_proj": 2, "up_proj": 4})
    folder = save_adapter(
        tmp_path / "a", model, factors, rank_pattern={"q_proj": 2}, use_rslora=True,
        alpha_pattern={r"layers\.1\..*": 5, ".*_proj": 3},
    )  # fmt: skip
    scales = {
        f"{LAYER}.self_attn.q_proj": 3 / 2**0.5,
        f"{LAYER}.mlp.up_proj": 3 / 2,
        "model.layers.1.self_attn.q_proj": 5 / 2**0.5,
        "model.layers.1.mlp.up_proj": 5 / 2,
    }
    assert_holds(open_adapter(folder), factors, scales.__getitem__)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"target_modules": ["q_proj", "mlp.up_proj"]}, "q0 q1 u0 u1"),
        ({"target_modules": r".*\.1\..*_proj"}, "q1 u1"),
        ({"target_modules": ["q_proj"], "layers_to_transform": [1]}, "q1"),
        (
            {"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"},
            "q0",
        ),
        ({"target_modules": ["q_proj", "up_proj"], "exclude_modules": ["up_proj"]}, "q0 q1"),
        ({"target_modules": "all-linear"}, "q0 q1 u0 u1"),
    ],
)
def test_modules_that_a_configuration_names(
    model: PreTrainedModel, tmp_path: Path, changes: dict[str, object], names: str
):
    factors = random_factors(model, ["q_proj", "up_proj"])
    short = {
        f"model.layers.{n}.{path}": f"{letter}{n}"
        for n in range(2)
        for letter, path in (("q", "self_attn.q_proj"), ("u", "mlp.up_proj"))
    }
    kept = {name: pair for name, pair in factors.items() if short[name] in names}
    folder = save_adapter(tmp_path / "kept", model, kept, **changes)
    config = open_adapter(folder).config
    assert sorted(short[name] for name in short if config.names(name)) == names.split()
    if len(kept) < len(factors):
        with pytest.raises(GraphgenError, match="cannot be used") as caught:
            open_adapter(save_adapter(tmp_path / "all", model, factors, **changes))
        assert caught.value.code == "GG0602"
        assert "target_modules does not name" in caught.value.note


UNBUILT = {
    "peft_type": "IA3",
    "lora_bias": True,
    "layer_replication": [[0, 1], [0, 1]],
    "target_parameters": ["experts.gate_up_proj"],
    "trainable_token_indices": [1],
    "alora_invocation_tokens": [1, 2],
    "init_lora_weights": "pissa",
    "use_qalora": True,
    "loftq_config": {"bits": 4},
}
WRONG = {
    "r": 0,
    "lora_alpha": "8",
    "use_rslora": 1,
    "rank_pattern": {"q_proj": 1.5},
    "alpha_pattern": {"(": 1},
    "target_modules": "(",
    "layers_to_transform": ["0"],
}


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [(k, v, "GG0502") for k, v in UNBUILT.items()] + [(k, v, "GG0503") for k, v in WRONG.items()],
)
def test_options_that_are_refused_by_name(
    model: PreTrainedModel, factors: Factors, tmp_path: Path, key: str, value: object, code: str
):
    with pytest.raises(GraphgenError, match=key) as caught:
        open_adapter(save_adapter(tmp_path / "a", model, factors, **{key: value}))
    assert caught.value.code == code
    assert caught.value.where.endswith("adapter_config.json")


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            {f"{NAMED}.lora_A.weight": torch.ones(3, 16)},
            "has 3 rows, the configuration says rank 4",
        ),
        ({f"{NAMED}.lora_B.weight": torch.ones(16, 5)}, "has 5 columns, the configuration says"),
        ({f"{NAMED}.lora_A.weight": torch.ones(4)}, "has shape [4], a factor has two dimensions"),
        ({f"{NAMED}.lora_A.weight": torch.ones(4, 16, dtype=torch.int8)}, "is s8; adapters are"),
        ({f"{NAMED}.lora_A.weight": None}, "is without its lora_A"),
        ({f"{NAMED}.lora_B.weight": None}, "is without its lora_B"),
        ({f"{NAMED}.lora_B.bias": torch.ones(16)}, "is not a tensor of a LoRA adapter"),
        ({f"{NAMED}.lora_magnitude_vector": torch.ones(16)}, "is with DoRA's magnitude"),
        ({"base_model.model.prompt": torch.ones(1)}, "is not a tensor of a LoRA adapter"),
    ],
)
def test_tensors_that_contradict_are_refused_by_name(
    model: PreTrainedModel,
    factors: Factors,
    tmp_path: Path,
    change: dict[str, torch.Tensor | None],
    note: str,
):
    tensors = {**peft_tensors(model, factors), **change}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(GraphgenError) as caught:
        open_adapter(save_peft(tmp_path / "a", kept, peft_config(factors)))
    assert caught.value.code == "GG0602"
    assert note in caught.value.note
    assert "base_model.model." in caught.value.note


def test_files_that_are_missing(model: PreTrainedModel, factors: Factors, tmp_path: Path):
    def refused(path: Path) -> str:
        with pytest.raises(GraphgenError) as caught:
            open_adapter(path)
        assert caught.value.code == "GG0601"
        return str(caught.value)

    assert "no such adapter" in refused(tmp_path / "nowhere")
    folder = save_adapter(tmp_path / "a", model, factors)
    (folder / "adapter_config.json").unlink()
    assert "adapter_config.json is missing" in refused(folder)
    (folder / "adapter_model.safetensors").unlink()
    assert "none of adapter_model.safetensors" in refused(folder)
    torch.save({"x.lora_A.weight": torch.ones(1, 1)}, tmp_path / "plain.pt")
    assert "holds no lora_config" in refused(tmp_path / "plain.pt")
    cut = save_adapter(tmp_path / "cut", model, factors)
    data = (cut / "adapter_model.safetensors").read_bytes()
    (cut / "adapter_model.safetensors").write_bytes(data[:-7])
    assert "lora_" in refused(cut)
    (cut / "adapter_model.safetensors").write_bytes(data)
    (cut / "adapter_config.json").write_text(json.dumps([1]))
    assert "holds no JSON object" in refused(cut)
