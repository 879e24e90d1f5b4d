"""Every family in every form a checkpoint folder has: the logits of transformers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from runtime.checkpoint.open import open_checkpoint
from runtime.model import Settings, build_model
from runtime.programs import ProgramStore
from runtime.progress import Silent
from runtime.session import Session
from runtime.weights import RankWeights, check_checkpoint, put_weights, read_weight
from tests.oracles.families import FORMS, ORACLES, save_as

PROMPTS = ([7, 3, 60, 12, 9, 33, 1], [5, 41])
NEXT = (17, 2)


@cache
def oracle(family: str) -> PreTrainedModel:
    return ORACLES[family].model(initializer_range=0.1)


@cache
def programs(family: str) -> ProgramStore:
    """Compiled once a family: what is tried here is how the weights get there."""
    config = oracle(family).config.to_dict()
    return ProgramStore(build_model(config, Settings("f32", len(PROMPTS), 16)).module, Silent())


def session(family: str, folder: Path) -> Session:
    store, checkpoint = programs(family), open_checkpoint(folder)
    check_checkpoint(checkpoint, store.module)
    weights = RankWeights(store.module, lambda row: read_weight(checkpoint, row))
    return Session(store, put_weights(weights, Silent()))


def last_logits(model: PreTrainedModel, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1].float().numpy()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ORACLES)
def test_logits_are_those_of_transformers(family: str, form: str, tmp_path: Path):
    model = oracle(family)
    save_as(model, tmp_path, form)
    files = [file for kind in ("*.safetensors", "*.bin") for file in tmp_path.glob(kind)]
    assert (len(files) > 2) == form.endswith("sharded"), files
    assert all(file.suffix == (".bin" if "torch" in form else ".safetensors") for file in files)
    ours = session(family, tmp_path)
    prefill = ours.prefill(PROMPTS)
    decode = ours.decode(NEXT)
    for row, (prompt, token) in enumerate(zip(PROMPTS, NEXT, strict=True)):
        np.testing.assert_allclose(prefill[row], last_logits(model, prompt), rtol=0, atol=1e-4)
        wanted = last_logits(model, [*prompt, token])
        np.testing.assert_allclose(decode[row], wanted, rtol=0, atol=1e-4)
