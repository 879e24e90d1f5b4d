"""DeepSeek-V3's checkpoints: f8e4m3 in blocks, of linear layers and of each expert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers import PreTrainedModel

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Role, dtype
from graphgen.models import build
from graphgen.passes.quantization.stored_readings import read_quantized
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from tests.oracles.families import ORACLES
from tests.oracles.sessions import open_session
from tests.oracles.stored_names import checkpoint_tensors

BLOCK = 8
STATED = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [BLOCK, BLOCK],
}
SIZES: dict[str, Any] = {
    "moe_intermediate_size": 16,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}


def narrowed(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, a scale a block, and what they mean."""
    rows, columns = [-(-size // BLOCK) for size in weight.shape]
    spread = np.zeros((rows * BLOCK, columns * BLOCK), np.float32)
    spread[: weight.shape[0], : weight.shape[1]] = np.abs(weight)
    scale = spread.reshape(rows, BLOCK, columns, BLOCK).max((1, 3)) / 448
    each = np.repeat(np.repeat(scale, BLOCK, 0), BLOCK, 1)[: weight.shape[0], : weight.shape[1]]
    numbers = (weight / each).astype(ml_dtypes.float8_e4m3fn)
    return numbers, scale, numbers.astype(np.float32) * each


def write(model: PreTrainedModel, folder: Path) -> None:
    """The model as a checkpoint in blocks; the model gets the weights that they mean."""
    model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": STATED}))
    tensors: dict[str, np.ndarray] = {}
    meant: dict[str, np.ndarray] = {}
    for name, tensor in checkpoint_tensors(model).items():
        array = np.ascontiguousarray(tensor.numpy())
        tensors[name] = array
        if "_proj" in name and name.endswith("weight"):
            numbers, scale, meant[name] = narrowed(array)
            tensors[name], tensors[f"{name}_scale_inv"] = numbers, scale
    save_file(tensors, folder / "model.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            layer, experts, last = name.partition(".mlp.experts.")
            if name in meant:
                parameter.copy_(torch.from_numpy(meant[name]))
            elif experts:
                parts = ("gate_proj", "up_proj") if last == "gate_up_proj" else ("down_proj",)
                for expert in range(parameter.shape[0]):
                    own = f"{layer}.mlp.experts.{expert}"
                    held = np.concatenate([meant[f"{own}.{part}.weight"] for part in parts])
                    parameter[expert].copy_(torch.from_numpy(held))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"latent_attention": "absorb"},
        {"tp": 2},
        {"tp": 4, "moe_ep_degree": 2, "expert_dispatch": "blockwise"},
    ],
    ids=str,
)
@pytest.mark.one_in(2)
def test_logits_are_those_of_the_weights_that_blocks_mean(
    changes: dict[str, object], tmp_path: Path
):
    model = ORACLES["deepseek_v3"].model(initializer_range=0.1, **SIZES)
    write(model, tmp_path)
    config = CompileConfig(dtype="f32", batch=(2,), context=(8,), tokens=(8, 16))
    session = open_session(tmp_path, config.updated(changes))
    texts = [[3, 14, 15, 9, 26, 5], [35, 8, 9, 7, 9, 3]]
    ours = [session.prefill([text[:5] for text in texts]), session.decode([t[5] for t in texts])]
    with torch.no_grad():
        wanted = [model(torch.tensor([text])).logits[0].numpy() for text in texts]
    for step, found in enumerate(ours):
        theirs = np.stack([one[4 + step] for one in wanted])
        np.testing.assert_allclose(found, theirs, rtol=0, atol=1e-4)


def test_experts_stay_narrow(tmp_path: Path):
    write(ORACLES["deepseek_v3"].model(**SIZES), tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    module = build(checkpoint.config, dtype("f32"))
    read_quantized(module, checkpoint.config)
    check_checkpoint(checkpoint, module)
    held = {row.name: row.logical.text for row in module.entries(Role.WEIGHT)}
    experts = "model.layers.1.mlp.experts.down_proj.weight"
    assert held[experts] == "f8e4m3fn[8,32,16]"
    assert held[f"{experts}_scale_inv"] == "f32[8,4,2]"
    assert held["model.layers.1.self_attn.kv_b_proj.weight"] == "f8e4m3fn[64,16]"
    # The router is as it is.
    assert held["model.layers.1.mlp.gate.weight"] == "f32[8,32]"
