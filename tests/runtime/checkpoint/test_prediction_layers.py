"""Layers of multi-token prediction are recognized, named in a remark, and not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint, prediction_remark
from graphgen.runtime.model import build_model
from tests.oracles.families import ORACLES, save


def with_layer(folder: Path, without: str = "") -> None:
    """Store one layer more in a checkpoint of two, as DeepSeek-V3 does."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    own = {name for name in tensors if name.startswith("model.layers.1.")}
    more = {name.replace(".layers.1.", ".layers.2."): tensors[name] for name in own}
    width = len(tensors["model.norm.weight"])
    norms = ("enorm", "hnorm", "shared_head.norm")
    more |= {f"model.layers.2.{name}.weight": np.ones(width, np.float32) for name in norms}
    more["model.layers.2.eh_proj.weight"] = np.ones((width, 2 * width), np.float32)
    more["model.layers.2.embed_tokens.weight"] = tensors["model.embed_tokens.weight"]
    more["model.layers.2.shared_head.head.weight"] = tensors["lm_head.weight"]
    more.pop(f"model.layers.2.{without}", None)
    save_file(tensors | more, file)


def test_a_layer_that_predicts_further_tokens_is_named(tmp_path: Path):
    save(ORACLES["deepseek_v3"].model(), tmp_path)
    plain = open_checkpoint(tmp_path)
    module = build_model(plain.config, CompileConfig()).module
    assert check_checkpoint(plain, module) == ""
    with_layer(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    remark = check_checkpoint(checkpoint, module)
    assert remark.startswith("layer 2 (")
    assert "multi-token prediction" in remark
    for name in checkpoint.tensors().keys() - plain.tensors().keys():
        assert name.startswith("model.layers.2.")


def test_a_layer_too_many_without_its_join_is_unexpected(tmp_path: Path):
    save(ORACLES["deepseek_v3"].model(), tmp_path)
    module = build_model(open_checkpoint(tmp_path).config, CompileConfig()).module
    with_layer(tmp_path, without="eh_proj.weight")
    with pytest.raises(GraphgenError, match="unexpected") as caught:
        check_checkpoint(open_checkpoint(tmp_path), module)
    assert "the checkpoint has 3 layers, the model wants 2" in str(caught.value)


def test_several_layers_are_counted_together():
    text = prediction_remark({3: ("a", "b"), 4: ("c",)})
    assert text.startswith("layers 3, 4 (3 tensors) predict further tokens")
    assert prediction_remark({}) == ""
