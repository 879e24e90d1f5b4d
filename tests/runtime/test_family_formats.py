"""Every family in every form a checkpoint folder has: the logits of transformers.

Each with all it can have at once, three prompts of different lengths in a batch, prefill and
decode, across the boundary of a bucket.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import RankWeights, put_weights, read_weight
from tests.oracles.families import FORMS, ORACLES, save_as
from tests.oracles.family_oracle import ALL_AT_ONCE

# Longer than the windows; the last goes on in the next bucket.
LENGTHS, STEPS = (5, 17, 127), 2
RNG = np.random.default_rng(4)
TEXTS = [RNG.integers(0, 61, size + STEPS).tolist() for size in LENGTHS]


@cache
def oracle(family: str) -> PreTrainedModel:
    return ORACLES[family].model(ALL_AT_ONCE, initializer_range=0.1)


@cache
def wanted(family: str) -> list[np.ndarray]:
    """All logits of transformers for each text."""
    with torch.no_grad():
        found = [oracle(family)(torch.tensor([text]), use_cache=False).logits for text in TEXTS]
    return [logits[0].float().numpy() for logits in found]


@cache
def programs(family: str) -> ExecutableCache:
    """Compiled once a family: what is tried here is how the weights get there."""
    config = oracle(family).config.to_dict()
    built = build_model(config, CompileConfig(dtype="f32").serving(batch=len(LENGTHS), max_len=130))
    return ExecutableCache(built.module, Silent())


def session(family: str, folder: Path) -> Session:
    store, checkpoint = programs(family), open_checkpoint(folder)
    check_checkpoint(checkpoint, store.module)
    weights = RankWeights(store.module, lambda row: read_weight(checkpoint, row))
    return Session(store, put_weights(weights, Silent()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ORACLES)
@pytest.mark.one_in(18)
def test_logits_are_those_of_transformers(family: str, form: str, tmp_path: Path):
    model = oracle(family)
    save_as(model, tmp_path, form)
    files = [file for kind in ("*.safetensors", "*.bin") for file in tmp_path.glob(kind)]
    assert (len(files) > 2) == form.endswith("sharded"), files
    assert all(file.suffix == (".bin" if "torch" in form else ".safetensors") for file in files)
    ours = session(family, tmp_path)
    rows = list(zip(TEXTS, LENGTHS, strict=True))
    found = [ours.prefill([text[:size] for text, size in rows])]
    found += [ours.decode([text[size + step] for text, size in rows]) for step in range(STEPS)]
    for step, logits in enumerate(found):
        theirs = [w[size - 1 + step] for w, size in zip(wanted(family), LENGTHS, strict=True)]
        np.testing.assert_allclose(logits, np.stack(theirs), rtol=0, atol=1e-4)
    used = {report.name for report in ours.programs.reports}
    assert {"decode.b3.c128", "decode.b3.c130"} <= used


@pytest.mark.parametrize("family", ORACLES)
def test_the_models_have_all_at_once(family: str):
    model = oracle(family)
    config = model.config.to_dict()
    assert config["vocab_size"] % 2
    for name, tensor in model.named_parameters():
        if name.endswith("bias") or (tensor.ndim == 1 and name.endswith("weight")):
            assert tensor.abs().min() > 0, name
            assert tensor.std() > 0.1, name
    if config.get("sliding_window"):
        assert config["sliding_window"] < min(LENGTHS)
    rope = json.dumps(config.get("rope_parameters") or {})
    assert "500.0" in rope or "rope_theta" not in rope
