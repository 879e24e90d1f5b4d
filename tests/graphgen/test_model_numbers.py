"""The logical module of a model computes what transformers computes, padded and step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig as TheirConfig
from transformers import LlamaForCausalLM

from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import Dim, Function, Module, Role
from graphgen.ir.dtype import f32
from graphgen.models import build
from passes.core.clone import Binder

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 61,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short, so that the blend is felt at the positions tried here.
    "original_max_position_embeddings": 16,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "llama 3 positions": {"rope_parameters": LLAMA3},
    "linear positions": {
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
    },
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "its own head size": {"head_dim": 12, "rms_norm_eps": 1e-3},
    "a head each": {"num_key_value_heads": 4},
    "one head for all": {"num_key_value_heads": 1},
}
ROWS, SLOTS = 3, 12
PROMPTS = [[3, 14, 15, 9, 26], [5, 35, 8], [9, 7, 9, 3, 2, 38, 46]]
NEXT = [[1, 50], [2, 51], [3, 52]]


def theirs(changes: dict[str, Any]) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {**SIZES, **changes, "attn_implementation": "eager"}
    config = TheirConfig(**sizes, initializer_range=0.3)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("norm.weight"):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                tensor.normal_(0, 0.3)
    return model.double().eval()


def ours(
    module: Module, phase: str, dims: dict[str, Dim], given: dict[str, Array]
) -> dict[str, Array]:
    bound = Function(phase)
    Binder({**dims, "R": ROWS, "M": SLOTS}).clone(module.function(phase), bound, "")
    return evaluate(bound, given, MEANING)


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_transformers(name: str):
    changes = VARIANTS[name]
    model = theirs(changes)
    module = build({"model_type": "llama", **SIZES, **changes}, f32)
    tensors = {key: value.numpy() for key, value in model.state_dict().items()}
    given = {row.name: tensors[row.name] for row in module.entries(Role.WEIGHT)}
    states = [row.name for row in module.entries(Role.STATE)]
    for row in module.entries(Role.STATE):
        given[row.name] = np.zeros(row.logical.bind({"R": ROWS, "M": SLOTS}).dims, np.float64)

    def expected(count: int) -> Array:
        """Logits of each row after its prompt and ``count`` more tokens, computed at one go."""
        with torch.no_grad():
            rows = [p + n[:count] for p, n in zip(PROMPTS, NEXT, strict=True)]
            return np.stack([model(torch.tensor([row])).logits[0, -1].numpy() for row in rows])

    # The first and the last prompt are padded behind, the second in front.
    tokens, positions = np.zeros((ROWS, 8), np.int32), np.full((ROWS, 8), -1, np.int32)
    for row, prompt in enumerate(PROMPTS):
        start = 8 - len(prompt) if row == 1 else 0
        tokens[row, start : start + len(prompt)] = prompt
        positions[row, start : start + len(prompt)] = range(len(prompt))
    lengths = np.array([len(prompt) for prompt in PROMPTS], np.int32)
    call = {"tokens": tokens, "positions": positions, "lengths": lengths}
    call["seq_ids"] = np.array([2, 0, 1], np.int32)
    out = ours(module, "prefill", {"B": ROWS, "S": 8, "C": 8}, {**given, **call})
    np.testing.assert_allclose(out["logits"], expected(0), rtol=1e-4, atol=1e-4)
    for step in range(2):
        given |= {state: out[state] for state in states}
        call |= {
            "tokens": np.array([[row[step]] for row in NEXT], np.int32),
            "positions": (lengths + step)[:, None],
            "lengths": lengths + step + 1,
        }
        out = ours(module, "decode", {"B": ROWS, "C": SLOTS}, {**given, **call})
        np.testing.assert_allclose(out["logits"], expected(step + 1), rtol=1e-4, atol=1e-4)
