"""A context of 128 k tokens is planned with attention in tiles."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import TILES_AUTO, TILES_OFF
from graphgen.lowering.plan.measure import measure
from graphgen.models import known_shape
from graphgen.targets import accelerator

TOKENS = 128 * 1024
# Bytes of one head's scores of all tokens and slots.
SCORES = 4 * TOKENS**2


def activations(block: str) -> int:
    """Bytes of a prefill of Llama 3.1 8B, whose layers follow each other, on one of 8 cores."""
    config = CompileConfig(
        target="trn2", dtype="bf16", context=(TOKENS,), tokens=(TOKENS,), attention_block=block
    )
    shape = {**known_shape("llama-3.1-8b"), "num_hidden_layers": 2}
    return measure(shape, config, 8).activations


@pytest.mark.slow
def test_activations_are_those_of_tiles():
    tiles, whole = activations(TILES_AUTO), activations(TILES_OFF)
    assert tiles < accelerator("trn2").hbm_bytes / 2
    # A core has 4 of 32 heads.
    assert whole > 4 * SCORES > 20 * tiles
