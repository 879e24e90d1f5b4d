"""Text models of checkpoints that read images too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.model import build_model
from tests.oracles.families import ORACLES, save


def test_the_text_model_of_llama_4_is_read(tmp_path: Path):
    save(ORACLES["llama4_text"].model("dense layers"), tmp_path)
    alone = open_checkpoint(tmp_path)
    wanted = {name: np.array(alone.read(name)) for name in alone.tensors()}
    file, described = tmp_path / "model.safetensors", tmp_path / "config.json"
    tensors = {f"language_model.{name}": array for name, array in load_file(file).items()}
    for other in ("vision_model.class_embedding", "multi_modal_projector.linear_1.weight"):
        tensors[other] = np.zeros((2, 2), np.float32)
    save_file(tensors, file)
    text = json.loads(described.read_text())
    whole = {"model_type": "llama4", "text_config": text, "vision_config": {"hidden_size": 8}}
    described.write_text(json.dumps({**whole, "boi_token_index": 1, "dtype": "float32"}))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config == alone.config
    found = checkpoint.tensors()
    assert wanted.keys() < found.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(checkpoint.read(name), array)
    check_checkpoint(checkpoint, build_model(checkpoint.config, CompileConfig()).module)
