"""Bytes that a decode step moves with quantized weights and caches, counted by hand."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir.dtype import bf16
from graphgen.lowering.cost.roofline import roofline
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import accelerator

# The mini twin: 2 layers, hidden size 64, 8 heads of 8 and 2 of keys and values, 128 inside.
LAYERS, ROWS, SLOTS, KEYS, SIZE = 2, 2, 8, 2, 8
# Outputs and inputs of the weights of a layer: queries, keys, values, output, gate, up, down.
WEIGHTS = ((64, 64), (16, 64), (16, 64), (64, 64), (128, 64), (128, 64), (64, 128))
# Rows of keys or values of one token and head: read, and written, which reads and writes them.
READ, WRITTEN = 2 * LAYERS * ROWS * SLOTS * KEYS, 2 * 2 * LAYERS * ROWS * KEYS


def step(**options: object) -> int:
    """Bytes of a decode step of two rows in bf16, on trn2."""
    module = build(known_shape("llama-3.1-8b"), bf16, mini=True)
    config = CompileConfig(batch=(ROWS,), context=(), tokens=(SLOTS,), target="trn2")
    run_pipeline(module, default(config.updated(options)))
    (function,) = module.programs()
    return roofline(module, function, accelerator("trn2")).total.bytes


PLAIN = step()
NUMBERS = LAYERS * sum(n * k for n, k in WEIGHTS)
# Products that are one in the program have a scale for each of their outputs.
TENSORS = LAYERS * (64 + 16 + 16 + 1 + 128 + 128 + 1)


@pytest.mark.parametrize(
    ("scheme", "scales"),
    [
        ("", LAYERS * sum(n for n, _ in WEIGHTS)),
        ("dtype=f8e4m3", LAYERS * sum(n for n, _ in WEIGHTS)),
        ("scheme=per_tensor_symmetric", TENSORS),
        # An s4 has a byte, as in XLA.
        ("dtype=int4,scheme=group,group_size=32", NUMBERS // 32),
        # Of 64 inputs a group is short: blocks of 16 divide it and the others.
        ("dtype=int4,scheme=group,group_size=48", NUMBERS // 16),
    ],
)
def test_a_weight_is_its_numbers_and_its_scales(scheme: str, scales: int):
    found = step(quantization=f"quantize-weights{{{scheme}}}")
    assert PLAIN - found == NUMBERS * (2 - 1) - 4 * scales


@pytest.mark.parametrize(
    ("element", "scale", "row"),
    [
        ("f8e4m3", "none", SIZE),
        ("f8e5m2", "per_token", SIZE + 4),
        ("int8", "per_token", SIZE + 4),
    ],
)
def test_a_cache_is_its_numbers_and_the_scales_of_its_rows(element: str, scale: str, row: int):
    found = step(kv_cache_quant=True, kv_cache_dtype=element, kv_cache_scale=scale)
    assert PLAIN - found == (READ + WRITTEN) * (2 * SIZE - row)
