"""Adapters that PEFT itself makes and saves: our rows are what PEFT's model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.lora.adapter_file import open_adapter
from graphgen.runtime.lora.loaded_adapters import adapter_parts, needed_settings, read_parts
from graphgen.runtime.lora.merge_adapter import merge_adapter, open_merge_base
from graphgen.runtime.progress import Silent
from tests.oracles.sessions import open_session
from tests.runtime.session.lora_checkpoint import settings

# PEFT reads a property that transformers is about to rename.
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
PROMPT = [5, 6, 7, 3]
# What is given to PEFT's LoraConfig.
ADAPTERS: dict[str, dict[str, Any]] = {
    "plain": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "o_proj", "down_proj"]},
    "patterns": {
        "r": 2,
        "lora_alpha": 6,
        "use_rslora": True,
        "target_modules": r".*\.(k_proj|v_proj|up_proj)",
        "rank_pattern": {"up_proj": 5},
        "alpha_pattern": {"self_attn.v_proj": 3},
    },
}
ROWS = ("patterns", "__base__", "plain")


def base() -> LlamaForCausalLM:
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = LlamaConfig(
        **sizes, vocab_size=96, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def config_of(fields: dict[str, Any]) -> LoraConfig:
    """Of an adapter whose matrices are random, B too."""
    return LoraConfig(**fields, init_lora_weights=False, task_type="CAUSAL_LM")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and the adapters in folders that PEFT has written."""
    made = tmp_path_factory.mktemp("peft")
    base().save_pretrained(made / "base")
    for seed, (name, fields) in enumerate(ADAPTERS.items()):
        torch.manual_seed(seed)
        get_peft_model(base(), config_of(fields)).save_pretrained(str(made / name))
    return made


def logits(model: Any, rows: int = 1, **options: object) -> Any:
    with torch.no_grad():
        return model(input_ids=torch.tensor([PROMPT] * rows), **options).logits[:, -1].numpy()


def test_rows_are_those_of_pefts_batch_and_of_its_merged_models(folder: Path):
    """Rank-stabilized scales and patterns of ranks and scales among them; PEFT's two ways agree."""
    first, *others = ADAPTERS
    model = PeftModel.from_pretrained(base(), str(folder / first), adapter_name=first)
    for name in others:
        model.load_adapter(str(folder / name), name)
    wanted = logits(model.eval(), len(ROWS), adapter_names=list(ROWS))
    assert np.abs(wanted[0] - wanted[1]).max() > 0.1
    for row, name in enumerate(ROWS):
        if name != "__base__":
            alone: Any = PeftModel.from_pretrained(base(), str(folder / name))
            np.testing.assert_allclose(logits(alone.merge_and_unload())[0], wanted[row], atol=1e-4)
    checkpoint = open_checkpoint(folder / "base")
    paths = [folder / name for name in ADAPTERS]
    needed = needed_settings(checkpoint.config, paths, only=True)
    assert (needed["max_loras"], needed["max_lora_rank"]) == (2, 5)
    session = open_session(folder / "base", settings(**needed))
    slots = session.adapters
    assert slots is not None
    for slot, path in enumerate(paths):
        adapter = open_adapter(path)
        parts = adapter_parts(adapter, checkpoint.config, slots.targets)
        slots.write(slot, read_parts(adapter, parts, slots.targets))
    for row, name in enumerate(ROWS):
        slots.assign(row, -1 if name == "__base__" else list(ADAPTERS).index(name))
    np.testing.assert_allclose(session.prefill([PROMPT] * 3), wanted, atol=1e-4)


def test_dora_of_peft_is_merged(folder: Path, tmp_path: Path):
    fields = {"r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": ["q_proj", "up_proj"]}
    model: Any = get_peft_model(base(), config_of(fields)).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "magnitude" in name:
                tensor.mul_(1.25)
    model.save_pretrained(str(tmp_path / "dora"))
    adapter, out = open_adapter(tmp_path / "dora"), tmp_path / "merged"
    merge_adapter(open_merge_base(folder / "base"), adapter, out, Silent())
    merged = LlamaForCausalLM.from_pretrained(out).eval()
    assert np.abs(logits(model) - logits(base())).max() > 0.1
    np.testing.assert_allclose(logits(merged), logits(model), atol=1e-4)


def test_adapters_of_stacked_parameters_are_refused_by_name(tmp_path: Path):
    """PEFT's form for the experts of today's transformers, which have no modules of their own."""
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1}
    config = MixtralConfig(
        **sizes, vocab_size=32, num_attention_heads=2, num_key_value_heads=1, num_local_experts=2
    )
    fields: dict[str, Any] = {"r": 2, "target_parameters": ["mlp.experts.down_proj"]}
    made = get_peft_model(MixtralForCausalLM(config), config_of({**fields, "target_modules": []}))
    made.save_pretrained(str(tmp_path / "x"))
    with pytest.raises(GraphgenError, match=r"target_parameters = \['mlp.experts.down_proj'\]"):
        open_adapter(tmp_path / "x")
