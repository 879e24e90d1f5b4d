"""Sinks of attention go with their heads: over ranks, in rings, pages and kernels (GPT-OSS)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphgen.config.compile_config import CompileConfig
from tests.oracles.families import ORACLES, save
from tests.oracles.sessions import open_session

SIZES = CompileConfig(dtype="f32", batch=(3,), context=(16,), tokens=(16, 32))
# Four query heads, two of keys and values: none, one or both of them are on several ranks.
CASES = [
    {"kernels": "on"},
    {"kernels": "off"},
    {"roll_window_cache": True, "kernels": "on"},
    {"roll_window_cache": True, "tp": 3},
    {"page_cache": 8},
    {"page_cache": 8, "tp": 2},
    {"tp": 2, "heads": "CONVERT_TO_MHA"},
    {"tp": 4, "heads": "REPLICATE_TO_TP_DEGREE"},
    {"tp": 3, "heads": "REPLICATED_HEADS"},
    {"tp": 2, "heads": "ALL_GATHER_HEADS"},
    {"tp": 2, "heads": "SHARD_OVER_BATCH", "batch": (4,)},
    {"attention_dtype": "f32", "softmax_dtype": "f32", "outline": True},
]
# The last step is in the next bucket; windows are of four positions.
LENGTHS, STEPS = (1, 14, 7), 4


@pytest.mark.parametrize("changes", CASES, ids=str)
@pytest.mark.one_in(4)
def test_logits_are_those_of_transformers(changes: dict[str, object], tmp_path: Path):
    model = ORACLES["gpt_oss"].model(initializer_range=0.1)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("sinks"):
                # Each head's own, and some larger than every score.
                tensor.copy_(torch.arange(4.0) * 2 - 3)
    save(model, tmp_path)
    session = open_session(tmp_path, SIZES.updated(changes))
    lengths = (*LENGTHS, 5)[: SIZES.updated(changes).batch[0]]
    random = np.random.default_rng(5)
    texts = [random.integers(0, 61, size + STEPS).tolist() for size in lengths]
    logits = [
        session.prefill([text[:size] for text, size in zip(texts, lengths, strict=True)]),
        *[
            session.decode([text[size + step] for text, size in zip(texts, lengths, strict=True)])
            for step in range(STEPS)
        ],
    ]
    with torch.no_grad():
        wanted = [model(torch.tensor([text])).logits[0].numpy() for text in texts]
    for step, ours in enumerate(logits):
        theirs = np.stack([w[n - 1 + step] for w, n in zip(wanted, lengths, strict=True)])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
