"""Every variant of Llama we accept computes what transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from tests.oracles.llama import SIZES, all_logits, write_llama
from tests.oracles.sessions import open_session

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "llama3 scaling": {"rope_parameters": LLAMA3, "head_dim": 16},
    "linear scaling": {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
    },
    "head_dim of its own": {"head_dim": 24},
    "tied": {"tie_word_embeddings": True},
    "attention_bias": {"attention_bias": True},
    "mlp_bias": {"mlp_bias": True},
    "both biases, one KV head": {
        "attention_bias": True,
        "mlp_bias": True,
        "num_key_value_heads": 1,
    },
    "no grouping, three layers": {"num_key_value_heads": 4, "num_hidden_layers": 3},
    "another epsilon and theta": {
        "rms_norm_eps": 0.1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 123.0},
    },
    "even vocabulary": {"vocab_size": 128},
}
PROMPT, NEXT = 130, 20


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.one_in(3)
def test_prefill_and_decode_logits_are_those_of_transformers(name: str, tmp_path: Path):
    model = write_llama(tmp_path, **VARIANTS[name])
    vocab = VARIANTS[name].get("vocab_size", SIZES["vocab_size"])
    tokens = np.random.default_rng(3).integers(0, vocab, PROMPT + NEXT).tolist()
    wanted = all_logits(model, tokens)
    session = open_session(tmp_path, CompileConfig(dtype="f32").serving(batch=2, max_len=256))
    # Row 1 holds a shorter prompt, so that the padding takes part.
    got = session.prefill([tokens[:PROMPT], tokens[:7]])
    np.testing.assert_allclose(got[0], wanted[PROMPT - 1], atol=1e-4, rtol=0)
    np.testing.assert_allclose(got[1], wanted[6], atol=1e-4, rtol=0)
    for step in range(NEXT):
        got = session.decode([tokens[PROMPT + step], tokens[7 + step]])
        np.testing.assert_allclose(got[0], wanted[PROMPT + step], atol=1e-4, rtol=0)
        np.testing.assert_allclose(got[1], wanted[7 + step], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ("plain",)])
@pytest.mark.one_in(3)
def test_the_variant_matters(name: str, tmp_path: Path):
    # The comparison above would notice a switch that is read and ignored: each changes something.
    plain = write_llama(tmp_path / "plain")
    other = write_llama(tmp_path / "other", **VARIANTS[name])
    tokens = list(range(100))
    a, b = all_logits(plain, tokens), all_logits(other, tokens)
    assert a.shape != b.shape or np.abs(a - b).max() > 1e-2
