"""Attributes that state something about the model or its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.models import known_shape
from graphgen.runtime.aws.config.model_checks import (
    check_model,
    quantized_checkpoint,
    stored_quantization,
)
from graphgen.runtime.aws.config.neuron_config import NeuronConfig


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
