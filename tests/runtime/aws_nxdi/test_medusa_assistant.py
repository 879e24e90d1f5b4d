"""``is_medusa`` as AWS's documents write it: the model is its own ``assistant_model``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.inference_config import load_pretrained_config
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.assisted_decoding import medusa_of
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from graphgen.runtime.progress import Silent
from tests.oracles.applications import open_reference, write_checkpoint
from tests.oracles.medusa import random_heads, save_heads
from tests.runtime.aws_nxdi.test_assisted_decoding import WIDE, prompts, settings

LLAMA = CAUSAL_LM["llama"]
TREE = [[0], [1], [0, 0], [0, 1], [0, 0, 0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_checkpoint(tmp_path_factory.mktemp("target"), **WIDE)
    save_heads(path, random_heads(*sizes(path), 4))
    return path


def sizes(path: Path) -> tuple[int, int]:
    config = json.loads((path / "config.json").read_text())
    return config["hidden_size"], config["vocab_size"]


def application(folder: Path, **options: Any) -> Any:
    given = {
        "batch_size": 3,
        "seq_len": 128,
        "torch_dtype": "float32",
        "is_medusa": True,
        "medusa_speculation_length": 6,
        "num_medusa_heads": 3,
        "medusa_tree": TREE,
        **options,
    }
    config = LLAMA.get_config_cls()(
        NeuronConfig(**given), load_config=load_pretrained_config(folder)
    )
    made: Any = LLAMA(str(folder), config)
    made.progress = Silent()
    return made


@pytest.mark.parametrize("options", [{}, {"tp_degree": 2}, {"medusa_speculation_length": 64}])
@pytest.mark.one_in(3)
def test_generate_gives_the_targets_own_tokens(folder: Path, options: dict[str, Any]):
    adapter = HuggingFaceGenerationAdapter(application(folder, **options).to_cpu())
    reference: Any = open_reference(folder)
    theirs = reference.generate(**prompts(), **settings())
    for assistant in (adapter, adapter.neuron_model):
        for side in ("left", "right"):
            ours = adapter.generate(**prompts(side), **settings(), assistant_model=assistant)
            assert torch.equal(ours[:, 9:], theirs[:, 9:])
    # Without an assistant the heads have no part.
    assert torch.equal(adapter.generate(**prompts(), **settings())[:, 9:], theirs[:, 9:])


def test_a_compiled_folder_keeps_the_heads(folder: Path, tmp_path: Path):
    made = application(folder)
    made.compile(tmp_path / "compiled")
    again = application(folder)
    again.load(tmp_path / "compiled")
    reference: Any = open_reference(folder)
    adapter = HuggingFaceGenerationAdapter(again)
    theirs = reference.generate(**prompts(), **settings())
    ours = adapter.generate(**prompts(), **settings(), assistant_model=adapter)
    assert torch.equal(ours[:, 9:], theirs[:, 9:])
    tags = [model.tag for model in made.models]
    assert tags[-1] == "medusa_speculation_model"
    (shapes,) = {arrays[0].shape for arrays in made.models[-1].input_generator()}
    assert tuple(shapes) == (3, 6)


def test_heads_may_be_part_of_the_model(folder: Path, tmp_path: Path):
    """A whole model with heads that share the model's own head for the vocabulary."""
    copy = tmp_path / "whole"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("medusa*"))
    tensors = load_file(copy / "model.safetensors")
    heads = random_heads(*sizes(folder), 3, own=False)
    whole = {**tensors, **{f"medusa_head.{name}": array for name, array in heads.items()}}
    save_file(
        {name: np.ascontiguousarray(array) for name, array in whole.items()},
        copy / "model.safetensors",
        metadata={"format": "pt"},
    )
    adapter = HuggingFaceGenerationAdapter(application(copy).to_cpu())
    reference: Any = open_reference(folder)
    theirs = reference.generate(**prompts(), **settings())
    ours = adapter.generate(**prompts(), **settings(), assistant_model=adapter)
    assert torch.equal(ours[:, 9:], theirs[:, 9:])


def test_a_model_without_heads_is_not_its_own_assistant(folder: Path):
    options = {"is_medusa": False, "medusa_speculation_length": 0, "num_medusa_heads": 0}
    made = application(folder, **options, medusa_tree=None, speculation_length=4)
    adapter = HuggingFaceGenerationAdapter(made.to_cpu())
    with pytest.raises(GraphgenError, match="assistant_model is the model itself"):
        adapter.generate(**prompts(), **settings(), assistant_model=adapter)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"medusa_speculation_length": 5}, "medusa_tree has 5 paths, 6 nodes"),
        ({"num_medusa_heads": 2}, r"the path \[0, 0, 0\] needs 3 heads"),
        ({"medusa_tree": [[1, 0]]}, r"goes through \[1\], which is missing"),
        ({"medusa_tree": {"0": 1}}, "has no path"),
        ({"medusa_tree": None}, "is_medusa needs medusa_tree"),
        ({"medusa_speculation_length": 0}, "is_medusa needs medusa_speculation_length"),
        ({"is_medusa": False}, "needs is_medusa"),
        ({"async_mode": True}, "is_medusa and async_mode exclude each other"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(folder: Path, options: dict[str, Any], says: str):
    with pytest.raises(GraphgenError, match=says) as caught:
        application(folder, **options)
    assert caught.value.code == "GG0903"
    assert caught.value.help


def test_more_heads_than_the_checkpoint_has_are_refused(folder: Path):
    with pytest.raises(GraphgenError, match="has 4 heads of Medusa, not 5"):
        application(folder, num_medusa_heads=5).to_cpu()


def test_the_tree_is_the_configurations(folder: Path):
    speculator = medusa_of(application(folder))
    assert speculator.length == 6
