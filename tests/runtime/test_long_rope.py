"""LongRoPE: a cache has keys of one list of factors, by the slots of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphgen.config.compile_config import CompileConfig
from tests.oracles.families import ORACLES, save
from tests.oracles.sessions import open_session

ORIGINAL = 16
FACTORS: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "original_max_position_embeddings": ORIGINAL,
    "short_factor": [1.0, 1.3, 2.1, 3.0],
    "long_factor": [2.0, 3.0, 5.0, 9.0],
}
CHANGES: dict[str, Any] = {"max_position_embeddings": 256, "rope_parameters": FACTORS}
STEPS = 3


# In one call transformers takes the long factors for all of a text of more than 16 tokens: the
# first row of the larger cache begins with less.
@pytest.mark.parametrize(
    ("slots", "lengths", "window", "more"),
    [
        (16, (5, 13, 9), None, {}),
        (64, (14, 40, 25), None, {}),
        pytest.param(64, (14, 40, 25), 6, {"tp": 2}, marks=pytest.mark.slow),
    ],
)
def test_logits_are_those_of_transformers(
    slots: int,
    lengths: tuple[int, ...],
    window: int | None,
    more: dict[str, Any],
    tmp_path: Path,
):
    model = ORACLES["phi3"].model(initializer_range=0.1, sliding_window=window, **CHANGES)
    save(model, tmp_path)
    rolled = CompileConfig(dtype="f32", roll_window_cache=window is not None).updated(more)
    config = rolled.serving(batch=len(lengths), max_len=slots)
    session = open_session(tmp_path, config)
    random = np.random.default_rng(3)
    texts = [random.integers(0, 61, size + STEPS).tolist() for size in lengths]
    ours = [session.prefill([text[:-STEPS] for text in texts])]
    ours += [session.decode([text[step - STEPS] for text in texts]) for step in range(STEPS)]
    with torch.no_grad():
        theirs = [model(torch.tensor([text]), use_cache=False).logits[0].numpy() for text in texts]
    wanted = [np.stack([one[step - STEPS - 1] for one in theirs]) for step in range(STEPS + 1)]
    np.testing.assert_allclose(np.stack(ours), np.stack(wanted), rtol=0, atol=1e-4)
