"""Layers that a checkpoint holds as one are read apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.models import read_model_config
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.split_rows import RowRange
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.model import build_model
from tests.oracles.families import ORACLES, save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(ORACLES["phi3"].model(), tmp_path)
    return tmp_path


def test_rows_of_blocks():
    array = np.arange(24).reshape(12, 2)
    (one, three) = (RowRange("x", start, 1, blocks).of(array) for start, blocks in ((4, 1), (2, 3)))
    np.testing.assert_array_equal(one, array[4:5])
    np.testing.assert_array_equal(three, array[[2, 6, 10]])
    assert np.shares_memory(one, array)


def test_parts_are_views_of_the_file(folder: Path):
    checkpoint = open_checkpoint(folder)
    infos = checkpoint.tensors()
    stored = load_file(folder / "model.safetensors")["model.layers.1.self_attn.qkv_proj.weight"]
    names = [f"model.layers.1.self_attn.{part}_proj.weight" for part in "qkv"]
    parts = [checkpoint.read(name) for name in names]
    assert [infos[name].shape for name in names] == [(32, 32), (16, 32), (16, 32)]
    assert not any("qkv_proj" in name or "gate_up" in name for name in infos)
    np.testing.assert_array_equal(np.concatenate(parts), stored)
    assert not any(part.flags.owndata for part in parts)


def test_other_rows_than_the_configuration_states(folder: Path):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.0.mlp.gate_up_proj.weight"
    save_file({**tensors, name: tensors[name][:-2].copy()}, file)
    checkpoint = open_checkpoint(folder)
    with pytest.raises(GraphgenError, match="gate_up_proj") as caught:
        check_checkpoint(checkpoint, build_model(checkpoint.config, CompileConfig()).module)
    assert caught.value.code == "GG0602"


LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.5, 2.0, 2.5],
    "long_factor": [1.0, 3.0, 4.0, 8.0],
}


def config(**changes: object) -> dict[str, object]:
    model = json.loads(ORACLES["phi3"].model().config.to_json_string(use_diff=False))
    del model["rope_parameters"]
    sizes = {"max_position_embeddings": 1024, "original_max_position_embeddings": 256}
    return {**model, **sizes, "rope_scaling": LONG, **changes}


def test_both_lists_of_factors_are_kept():
    read = read_model_config(config())
    assert read.max_position_embeddings == 1024
    assert read_model_config(read.to_hf()) == read
    # The name that the first checkpoints had.
    factors = {name: value for name, value in LONG.items() if name != "rope_type"}
    assert read_model_config(config(rope_scaling={**factors, "type": "su"})) == read


@pytest.mark.parametrize(
    ("changes", "code", "what"),
    [
        ({"rope_scaling": {**LONG, "short_factor": [1.0, 2.0]}}, "GG0503", "has 2 numbers for 4"),
        ({"rope_scaling": {**LONG, "short_factor": [1.0, 0.0]}}, "GG0503", "of positive numbers"),
        (
            {"partial_rotary_factor": 0.4},
            "GG0503",
            "rotates 3 dimensions, expected an even number up to 8",
        ),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "GG0502", "rope_type"),
        ({"full_attn_mod": 2}, "GG0502", "full_attn_mod"),
    ],
)
def test_configurations_that_are_refused(changes: dict[str, object], code: str, what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        read_model_config(config(**changes))
    assert caught.value.code == code
