"""Attributes that state something about the model or its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.models import known_shape
from graphgen.runtime.aws_config import model_checks
from graphgen.runtime.aws_config.model_checks import (
    check_model,
    quantized_checkpoint,
    stored_quantization,
)
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from tests.runtime.checkpoint.test_quantized_checkpoints import write


def test_norms_of_queries_and_keys_are_those_of_the_model():
    for name in ("qwen3-8b", "gemma-3-1b"):
        check_model(NeuronConfig(qk_layernorm=True), known_shape(name))
    with pytest.raises(GraphgenError, match="does not normalize queries and keys"):
        check_model(NeuronConfig(qk_layernorm=True), known_shape("llama-3.1-8b"))
    check_model(NeuronConfig(), known_shape("llama-3.1-8b"))


def test_a_path_without_a_checkpoint_is_for_weights_quantized_while_loading(tmp_path: Path):
    absent = NeuronConfig(quantized=True, quantized_checkpoints_path=str(tmp_path / "new"))
    assert quantized_checkpoint(absent) is None
    assert stored_quantization(absent) == {}
    there = NeuronConfig(quantized=True, quantized_checkpoints_path=str(tmp_path))
    with pytest.raises(GraphgenError) as caught:
        stored_quantization(there)
    assert caught.value.code == "GG0601"


def test_the_scales_that_a_checkpoint_has_fit_experts_too(tmp_path: Path):
    write(tmp_path, "aws rows")
    config = NeuronConfig(
        quantized=True,
        quantized_checkpoints_path=str(tmp_path),
        quantization_type="expert_wise_per_channel_symmetric",
    )
    assert stored_quantization(config)["quantization_type"] == "per_channel_symmetric"
    config.quantization_type = "per_tensor_symmetric"
    with pytest.raises(GraphgenError, match="has per_channel_symmetric"):
        stored_quantization(config)


def test_headers_are_read_once_while_the_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    opened: list[Path] = []

    def counted(path: Path, config: Mapping[str, object] | None) -> Checkpoint:
        opened.append(path)
        return open_checkpoint(path, config)

    monkeypatch.setattr(model_checks, "open_checkpoint", counted)
    write(tmp_path, "aws rows")
    config = NeuronConfig(
        quantized=True,
        quantized_checkpoints_path=str(tmp_path),
        quantization_type="per_channel_symmetric",
    )
    first = stored_quantization(config)
    assert first["quantization_dtype"] == "s8"
    assert stored_quantization(config) == first
    assert len(opened) == 1
    write(tmp_path, "aws tensor")
    with pytest.raises(GraphgenError, match="has f8e4m3"):
        stored_quantization(config)
    assert len(opened) == 2
