"""Experts of a checkpoint, one tensor each, are read as one stack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from tests.oracles.families import ORACLES, save
from tests.oracles.stored_names import stored_tensors

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


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_has_the_tensors_of_ours(family: str, tmp_path: Path):
    model = ORACLES[family].model()
    save(model, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    wanted = stored_tensors(model)
    assert {name: info.shape for name, info in checkpoint.tensors().items()} == {
        name: array.shape for name, array in wanted.items()
    }
    for name, array in wanted.items():
        np.testing.assert_array_equal(checkpoint.read(name), array)


def change(folder: Path, name: str, array: np.ndarray | None) -> None:
    """Replace one tensor of a saved model, or leave it out."""
    from safetensors.numpy import load_file, save_file

    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors[name]
    save_file({**tensors, **({} if array is None else {name: array})}, file, {"format": "pt"})


EXPERT = "model.layers.1.block_sparse_moe.experts.3.w1.weight"
WRONG = [
    (None, "is missing"),
    (np.zeros((48, 31), np.float32), r"is f32 \[48, 31\]"),
    (np.zeros((48, 32), np.float16), r"is f16 \[48, 32\]"),
]


@pytest.mark.parametrize(("array", "words"), WRONG)
def test_an_expert_unlike_the_others_is_named(array: np.ndarray | None, words: str, tmp_path: Path):
    save(ORACLES["mixtral"].model(), tmp_path)
    change(tmp_path, EXPERT, array)
    with pytest.raises(GraphgenError, match=f"expert 3 of .*w1.weight' {words}") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == "GG0602"
