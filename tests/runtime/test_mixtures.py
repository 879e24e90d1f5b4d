"""Mixtures of experts in every form and over ranks compute what transformers computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphgen.config.compile_config import CompileConfig
from tests.oracles.families import ORACLES, save
from tests.oracles.sessions import open_session

FAMILIES = [
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "llama4_text",
    "dbrx",
    "granitemoe",
]
FORMS = ["all", "selective", "capacity", "blockwise"]
# Five experts: two groups of ranks hold three each, one of which is padding.
RANKS = [{"tp": 2}, {"tp": 2, "moe_ep_degree": 2}, {"tp": 3}, {"tp": 4, "moe_ep_degree": 2}]
CASES = [
    *[(family, {"expert_dispatch": form}) for family in FAMILIES for form in FORMS],
    *[(family, {"expert_dispatch": "auto", **ranks}) for family in FAMILIES for ranks in RANKS],
    *[("deepseek_v3", {"latent_attention": form, "tp": 3}) for form in ("absorb", "expand")],
]
# The last step is in the next bucket.
LENGTHS, STEPS = (3, 14, 7), 3


@pytest.mark.parametrize(("family", "changes"), CASES, ids=str)
@pytest.mark.one_in(15)
def test_logits_are_those_of_transformers(family: str, changes: dict[str, object], tmp_path: Path):
    model = ORACLES[family].model(initializer_range=0.1)
    save(model, tmp_path)
    config = CompileConfig(dtype="f32", batch=(3,), context=(16,), tokens=(16, 32))
    session = open_session(tmp_path, config.updated(changes))
    random = np.random.default_rng(3)
    texts = [random.integers(0, 61, size + STEPS).tolist() for size in LENGTHS]
    logits = [
        session.prefill([text[:size] for text, size in zip(texts, LENGTHS, strict=True)]),
        *[
            session.decode([text[size + step] for text, size in zip(texts, LENGTHS, strict=True)])
            for step in range(STEPS)
        ],
    ]
    with torch.no_grad():
        wanted = [model(torch.tensor([text])).logits[0].numpy() for text in texts]
    for step, ours in enumerate(logits):
        theirs = np.stack([w[n - 1 + step] for w, n in zip(wanted, LENGTHS, strict=True)])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
