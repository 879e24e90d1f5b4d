"""Parameters of a model, and those of the experts that a token has."""

from __future__ import annotations

import pytest

from graphgen.ir import Role
from graphgen.ir.dtype import bf16
from graphgen.lowering.plan.measure import active_bytes, parameter_counts
from graphgen.models import build, known_shape
from graphgen.passes.quantization.stored_readings import read_quantized
from tests.passes.sharding.mixture_module import mixture_module


@pytest.mark.parametrize("stacked", [False, True])
def test_a_token_has_two_experts_of_each_mixture(stacked: bool):
    counts = parameter_counts(mixture_module(6, 10, stacked=stacked, layers=3))
    # A router of 6 x 8, and three matrices of 10 x 8 for each expert.
    assert counts.total == 3 * (6 * 8 + 6 * 3 * 10 * 8)
    assert counts.active == 3 * (6 * 8 + 2 * 3 * 10 * 8)


def test_biases_are_those_of_experts_too():
    counts = parameter_counts(mixture_module(6, 10, biases=True))
    assert counts.total - counts.active == 4 * (3 * 10 * 8 + 2 * 10 + 8)


def test_bytes_are_those_of_stored_numbers():
    """GPT-OSS 20B: three matrices of 2880 x 2880 each of 32 experts, in 4.25 bits a number."""
    config = known_shape("gpt-oss-20b")
    module = build({**config, "num_hidden_layers": 1}, bf16)
    wide = active_bytes(module)
    assert wide == 2 * parameter_counts(module).active
    read_quantized(module, config)
    experts = 32 * 3 * 2880 * 2880 * 17 // 32
    rows = [row for row in module.entries(Role.WEIGHT) if "_proj.weight_" in row.name]
    assert sum(row.logical.nbytes for row in rows) == experts
    assert wide - active_bytes(module) == 4 * 3 * 2880 * 2880 * 2 - experts * 4 // 32


def test_bytes_of_stored_blocks_are_those_of_their_scales_too():
    """DeepSeek-V3, a layer of experts: f8 numbers, and an f32 scale a block of 128 x 128."""
    config = known_shape("deepseek-v3")
    module = build({**config, "num_hidden_layers": 1, "first_k_dense_replace": 0}, bf16)
    read_quantized(module, config)
    rows = [row for row in module.entries(Role.WEIGHT) if ".experts." in row.name]
    numbers = 256 * 3 * 2048 * 7168
    assert sum(row.logical.nbytes for row in rows) == numbers + numbers // 128**2 * 4
    kept = {row.name for row in module.entries(Role.WEIGHT) if row.logical.dtype is bf16}
    assert {"model.embed_tokens.weight", "lm_head.weight"} <= kept
    assert not [name for name in kept if "_proj" in name]
