"""GraniteMoe with an expert of every token (granitemoeshared): transformers' logits and names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphgen.config.compile_config import CompileConfig
from graphgen.models import family_of, read_model_config
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from tests.oracles.families import ORACLES, save
from tests.oracles.family_oracle import Oracle
from tests.oracles.gguf_models import write_model
from tests.oracles.sessions import open_session

LENGTHS, STEPS = (3, 14, 7), 2
SHARED = Oracle(
    "GraniteMoeShared",
    {**ORACLES["granitemoe"].sizes, "shared_intermediate_size": 20},
    {"plain": {}, "none": {"shared_intermediate_size": 0}},
)


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("plain", {}),
        pytest.param("none", {}, marks=pytest.mark.slow),
        pytest.param("plain", {"tp": 2, "moe_ep_degree": 2}, marks=pytest.mark.slow),
        pytest.param("plain", {"dtype": "bf16"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_logits_are_those_of_transformers(variant: str, changes: dict[str, object], tmp_path: Path):
    model = SHARED.model(variant, initializer_range=0.1)
    save(model, tmp_path)
    config = CompileConfig(dtype="f32", batch=(3,), context=(16,), tokens=(16, 32))
    session = open_session(tmp_path, config.updated(changes))
    random = np.random.default_rng(3)
    texts = [random.integers(0, 61, size + STEPS).tolist() for size in LENGTHS]
    logits = [session.prefill([t[:size] for t, size in zip(texts, LENGTHS, strict=True)])]
    for step in range(STEPS):
        column = [text[size + step] for text, size in zip(texts, LENGTHS, strict=True)]
        logits.append(session.decode(column))
    with torch.no_grad():
        wanted = [model(torch.tensor([text])).logits[0].numpy() for text in texts]
    for step, ours in enumerate(logits):
        theirs = np.stack([w[n - 1 + step] for w, n in zip(wanted, LENGTHS, strict=True)])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.03 if "dtype" in changes else 1e-4)


def test_a_gguf_file_has_the_tensors_of_the_checkpoint(tmp_path: Path):
    model = SHARED.model(initializer_range=0.1)
    save(model, tmp_path / "folder")
    (path,) = write_model(model, tmp_path / "model.gguf")
    stored, found = open_checkpoint(tmp_path / "folder"), open_checkpoint(path)
    assert read_model_config(found.config) == read_model_config(stored.config)
    assert found.tensors().keys() == stored.tensors().keys()
    for name in stored.tensors():
        np.testing.assert_array_equal(found.read(name), stored.read(name), err_msg=name)


def test_both_types_are_one_family_and_survive_their_configuration(tmp_path: Path):
    save(SHARED.model(), tmp_path)
    stored = open_checkpoint(tmp_path).config
    assert family_of(stored) is family_of({"model_type": "granitemoe"})
    read = read_model_config(stored)
    assert read_model_config(read.to_hf()) == read
    assert read.to_hf()["model_type"] == stored["model_type"] == "granitemoeshared"
    plain = read_model_config({**stored, "shared_intermediate_size": 0})
    assert plain.to_hf()["model_type"] == "granitemoe"
    small = read.mini().to_hf()
    assert small["shared_intermediate_size"] not in (0, small["intermediate_size"])
