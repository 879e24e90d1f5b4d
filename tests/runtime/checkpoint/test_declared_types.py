"""Checkpoints with weights of several element types: kept as declared, beside torch in f32."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.passes.core import run_pipeline
from graphgen.passes.precision.declared_weights import DeclaredWeights
from graphgen.runtime.accuracy.perplexity import every_token_session, window_logits
from graphgen.runtime.checkpoint.dtype_policy import chosen_types
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.model import build_model, logical_module
from graphgen.runtime.progress import Silent
from graphgen.text import parse, print_module

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
NORMS = ("layernorm", "model.norm")
ISLAND = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    """Of two layers; norms and one projection are not numbers of bf16, all others are."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=48,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        dtype="bfloat16",
    )
    made = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if any(part in name for part in NORMS):
                weight.copy_(1 + 0.1 * torch.randn_like(weight))
            elif name != ISLAND:
                weight.copy_(weight.bfloat16().float())
    return made


def stored(model: LlamaForCausalLM, folder: Path) -> Path:
    """The model in bf16 but for its islands, which are in f32."""
    tensors = {
        name: weight if name == ISLAND or any(part in name for part in NORMS) else weight.bfloat16()
        for name, weight in model.state_dict().items()
    }
    save_file(
        {name: weight.contiguous() for name, weight in tensors.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(model.config.to_dict() | {"dtype": "bfloat16"}))
    return folder


def test_as_declared_is_nearer_to_torch_than_one_type(model: LlamaForCausalLM, tmp_path: Path):
    checkpoint = open_checkpoint(stored(model, tmp_path))
    types = chosen_types("as-declared", checkpoint)
    assert types["dtype"] == "bf16"
    assert set(types["weight_dtypes"]) == {  # pyright: ignore
        "f32:model.layers.*.input_layernorm.weight",
        "f32:model.layers.*.post_attention_layernorm.weight",
        "f32:model.norm.weight",
        f"f32:{ISLAND}",
    }
    with torch.no_grad():
        exact = model(torch.tensor([TOKENS])).logits[0].numpy()
    errors = {}
    for name, given in (("declared", types), ("bf16", {"dtype": "bf16"})):
        session = every_token_session(
            checkpoint, len(TOKENS), CompileConfig().updated(given), Silent()
        )
        (logits,) = window_logits(session, [TOKENS], Silent())
        errors[name] = float(np.sqrt(np.mean((logits - exact) ** 2)))
    # What is left is the rounding of activations.
    assert errors["declared"] < 0.9 * errors["bf16"] < 0.02


def test_weights_are_as_wide_as_declared(model: LlamaForCausalLM, tmp_path: Path):
    checkpoint = open_checkpoint(stored(model, tmp_path))
    config = CompileConfig().updated(chosen_types("as-declared", checkpoint))
    module, steps = logical_module(checkpoint.config, config)
    rows = {row.name: row.logical.dtype.name for row in module.entries(Role.WEIGHT)}
    declared = {name: info.dtype for name, info in checkpoint.tensors().items()}
    assert rows == {name: declared[name] for name in rows}
    assert [remark for step in steps for remark in step.remarks] == []
    built = build_model(checkpoint.config, config.serving(batch=1, max_len=16))
    assert {row.name: row.logical.dtype.name for row in built.module.entries(Role.WEIGHT)} == rows


TEXT = """module @m level=logical {{
  input %x : f32[2,4]
  weight %norm : bf16[4]
  output %y : bf16[2,4]
}}

func @f phase=decode {{
  arg %x : f32[2,4]
  arg %norm : bf16[4]
{body}
  return y = %y
}}
"""


def test_other_ops_read_a_rounded_weight_and_a_remark_names_it():
    body = (
        "  %0 = convert(%x) dtype=bf16 : bf16[2,4]\n"
        "  %1 = broadcast_in_dim(%norm) shape=[2,4] dimensions=[1] : bf16[2,4]\n"
        "  %y = multiply(%0, %1) : bf16[2,4]"
    )
    module = parse(TEXT.format(body=body))
    module.meta["dtype"] = "bf16"
    (report,) = run_pipeline(module, [DeclaredWeights(("f32:norm",))])
    assert report.remarks == ("rounded to bf16 as they are read: norm",)
    assert "weight %norm : f32[4]" in print_module(module)


@pytest.mark.parametrize("text", ["norm", "f8e4m3:norm", "f32:"])
def test_what_is_no_type_is_refused(text: str):
    module = parse(TEXT.format(body="  %y = rms_norm(%x, %norm) epsilon=1e-05 : bf16[2,4]"))
    with pytest.raises(GraphgenError, match="is not a type and a pattern"):
        run_pipeline(module, [DeclaredWeights((text,))])
