"""Merged checkpoints: the logits of the formula, tensor by tensor in little memory, or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.lora.adapter_file import open_adapter
from graphgen.runtime.lora.merge_adapter import MergedCheckpoint, merge_adapter, open_merge_base
from graphgen.runtime.progress import Silent
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.lora_adapters import (
    merged,
    peft_config,
    peft_tensors,
    random_factors,
    save_adapter,
    save_peft,
)
from tests.oracles.small_gguf import small_metadata, small_weights, to_gguf, write_gguf

TOKENS = torch.arange(3, 11)[None]


def llama(*, tied: bool = False, hidden: int = 16) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": hidden, "intermediate_size": 24, "num_hidden_layers": 2}
    config = LlamaConfig(
        **sizes, vocab_size=40, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=tied,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def gpt2() -> PreTrainedModel:
    torch.manual_seed(0)
    config = GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=40, n_positions=32)
    config.bos_token_id = config.eos_token_id = 0
    return GPT2LMHeadModel(config).eval()


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model.double()(TOKENS).logits


def merge(base: Path, adapter: Path, output: Path) -> MergedCheckpoint:
    return merge_adapter(open_merge_base(base), open_adapter(adapter), output, Silent())


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (llama(), ["q_proj", "k_proj", "o_proj", "up_proj", "down_proj"]),
        (llama(), ["lm_head", "embed_tokens"]),
        (llama(tied=True), ["lm_head", "q_proj"]),
        (llama(tied=True), ["embed_tokens"]),
        (gpt2(), ["c_attn", "c_proj", "c_fc"]),
    ],
    ids=["layers", "head", "tied-head", "tied-embedding", "gpt2"],
)
def test_logits_are_those_of_the_formula(
    model: PreTrainedModel, targets: list[str], tmp_path: Path
):
    """c_proj of GPT-2's attention is square and [in,out]: its shape says nothing."""
    model.save_pretrained(tmp_path / "base")
    factors = random_factors(model, targets)
    save_adapter(tmp_path / "adapter", model, factors)
    made = merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out")
    assert set(made.merged) == set(factors)
    assert made.untied == bool(
        model.config.tie_word_embeddings and {"lm_head", "embed_tokens"} & {*targets}
    )
    got = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out"))
    torch.testing.assert_close(got, logits(merged(model, factors, 2.0)), rtol=0, atol=2e-6)
    assert (got - logits(llama() if "c_fc" not in targets else gpt2())).abs().max() > 1e-2
    names = load_file(tmp_path / "out" / "model.safetensors")
    assert set(names) - set(load_file(tmp_path / "base" / "model.safetensors")) == (
        {"lm_head.weight"} if made.untied else set()
    )


def test_the_sum_is_rounded_once(tmp_path: Path):
    """In bf16 the result is the nearest number to the exact sum, within a bit of float32."""
    model = llama().bfloat16()
    model.save_pretrained(tmp_path / "base")
    factors = random_factors(model, ["gate_proj"])
    save_adapter(tmp_path / "adapter", model, factors)
    merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    wanted = merged(model, factors, 2.0).state_dict()
    for name, tensor in found.items():
        assert tensor.dtype == torch.bfloat16
        torch.testing.assert_close(tensor, wanted[name], rtol=0, atol=0)


def test_magnitudes_and_whole_tensors(tmp_path: Path):
    """DoRA scales each row of the sum to a norm of its own; modules_to_save are taken whole."""
    model = llama()
    model.save_pretrained(tmp_path / "base")
    factors = random_factors(model, ["k_proj"])
    tensors = peft_tensors(model, factors)
    norms = {name: torch.rand(len(b)) + 0.5 for name, (_, b) in factors.items()}
    for name, norm in norms.items():
        tensors[f"base_model.model.{name}.lora_magnitude_vector"] = norm
    head = torch.randn(40, 16)
    tensors["base_model.model.lm_head.weight"] = head
    config = peft_config(factors, use_dora=True, modules_to_save=["lm_head"])
    save_peft(tmp_path / "adapter", tensors, config)
    made = merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out")
    assert made.replaced == ("lm_head.weight",)
    found = load_file(tmp_path / "out" / "model.safetensors")
    torch.testing.assert_close(found["lm_head.weight"], head, rtol=0, atol=0)
    for name, (a, b) in factors.items():
        sums = model.state_dict()[f"{name}.weight"].double() + 2.0 * b.double() @ a.double()
        wanted = norms[name].double()[:, None] * sums / sums.norm(dim=1, keepdim=True)
        torch.testing.assert_close(found[f"{name}.weight"].double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"layers.0.self_attn.q_proj.lora_A.weight": torch.ones(4, 12)}, "do not fit 'model."),
        ({"layers.0.self_attn.q_proj.lora_B.weight": torch.ones(12, 4)}, "do not fit 'model."),
        ({"layers.9.self_attn.q_proj.lora_A.weight": torch.ones(4, 16),
          "layers.9.self_attn.q_proj.lora_B.weight": torch.ones(16, 4)}, "there is no 'model."),
        ({"layers.1.self_attn.q_proj.lora_A.weight": None,
          "layers.1.self_attn.q_proj.lora_B.weight": None}, "q_proj.lora_A' is missing"),
        ({"norm.weight": torch.ones(3)}, "'model.norm.weight' is [16]"),
        ({"embed_tokens.base_layer.weight": torch.ones(40, 16)}, "was made for another model"),
    ],
)  # fmt: skip
def test_another_model_is_refused_by_tensor_name(
    tmp_path: Path, change: Mapping[str, torch.Tensor | None], note: str
):
    model = llama()
    model.save_pretrained(tmp_path / "base")
    factors = random_factors(model, ["q_proj"])
    changed = {f"base_model.model.model.{name}": tensor for name, tensor in change.items()}
    tensors = {**peft_tensors(model, factors), **changed}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_peft(tmp_path / "adapter", kept, peft_config(factors))
    with pytest.raises(GraphgenError, match="does not fit") as caught:
        merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out")
    assert caught.value.code == "GG0602"
    assert note in caught.value.note
    assert not (tmp_path / "out").exists()


def test_a_block_at_a_time_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = llama(hidden=512)
    model.save_pretrained(tmp_path / "base")
    factors = random_factors(model, ["q_proj", "o_proj"])
    save_adapter(tmp_path / "adapter", model, factors)
    base, adapter = open_merge_base(tmp_path / "base"), open_adapter(tmp_path / "adapter")
    monkeypatch.setattr("graphgen.runtime.lora.merge_adapter._BLOCK_BYTES", 64 << 10)
    tracemalloc.start()
    try:
        merge_adapter(base, adapter, tmp_path / "out", Silent())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 512 * 512 * 4, "less than one of its weights"
    got = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out"))
    torch.testing.assert_close(got, logits(merged(model, factors, 2.0)), rtol=0, atol=1e-4)


KILLED = """
import os, signal, sys
from pathlib import Path
from typing import Any
from graphgen.runtime.lora import merge_adapter as module
from graphgen.runtime.lora.adapter_file import open_adapter
from graphgen.runtime.lora.merge_adapter import open_merge_base
from graphgen.runtime.progress import Silent

left = [5]
def write(file, array, append=module.append_tensor):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    append(file, array)
module.append_tensor = write
base, adapter, out = (Path(text) for text in sys.argv[1:])
module.merge_adapter(open_merge_base(base), open_adapter(adapter), out, Silent())
"""


@pytest.mark.slow
def test_a_kill_leaves_no_folder(tmp_path: Path):
    model = llama()
    model.save_pretrained(tmp_path / "base")
    save_adapter(tmp_path / "adapter", model, random_factors(model, ["q_proj"]))
    paths = [str(tmp_path / name) for name in ("base", "adapter", "out")]
    ran = subprocess.run([sys.executable, "-c", KILLED, *paths], env=dict(os.environ), check=False)
    assert ran.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base", "out"]


def _write_narrow(path: Path) -> None:
    """The small model with one matrix in blocks of 8 bits."""
    kind, name = GGMLQuantizationType.Q8_0, "model.layers.1.mlp.up_proj.weight"
    metadata = small_metadata()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    weights = small_weights(len(tokens))
    tensors = dict(to_gguf(each, weight) for each, weight in weights.items())
    narrow, values = to_gguf(name, weights[name])
    tensors[narrow] = quantize(values, kind)
    write_gguf(path, metadata, tensors, kinds={narrow: kind})


def test_the_command(tmp_path: Path):
    """Of a GGUF file with narrow weights only if asked; the tokenizer comes along."""
    _write_narrow(tmp_path / "base.gguf")
    checkpoint = open_checkpoint(tmp_path / "base.gguf")
    name = "model.layers.0.mlp.up_proj"
    out, into = checkpoint.tensors()[f"{name}.weight"].shape
    factors = {name: (torch.ones(4, into), torch.ones(out, 4))}
    tensors = {
        f"base_model.model.{name}.lora_{side}.weight": factor
        for side, factor in zip("AB", factors[name], strict=True)
    }
    config = peft_config(factors, layers_to_transform=[0])
    adapter = save_peft(tmp_path / "adapter", tensors, config)
    shown = error("merge-lora", tmp_path / "base.gguf", adapter, "-o", tmp_path / "out")
    assert "its weights are quantized (Q8_0)" in shown
    assert "--dequantize" in shown
    told = facts(
        "merge-lora", tmp_path / "base.gguf", adapter, "-o", tmp_path / "out", "--dequantize"
    )
    assert (told["merged"], told["untied"]) == ([name], False)
    assert told["bytes"] == (tmp_path / "out" / "model.safetensors").stat().st_size
    made = open_checkpoint(tmp_path / "out")
    np.testing.assert_array_equal(
        made.read(f"{name}.weight"), checkpoint.read(f"{name}.weight") + np.float32(8)
    )
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert "is there already" in error(
        "merge-lora", tmp_path / "out", adapter, "-o", tmp_path / "out"
    )
    shown = done("merge-lora", tmp_path / "out", adapter, "-o", tmp_path / "twice").stderr
    assert "1 weights merged" in shown
    done("quantize", tmp_path / "out", "-o", tmp_path / "narrow")
    shown = error("merge-lora", tmp_path / "narrow", adapter, "-o", tmp_path / "no")
    assert "error[GG0705]" in shown
    assert "its weights are quantized" in shown
