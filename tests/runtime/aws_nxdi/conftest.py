"""A small random Llama as a checkpoint and as a compiled application."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphgen.runtime.aws_config.inference_config import InferenceConfig, load_pretrained_config
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from tests.oracles.families import ORACLES, save, save_tokenizer


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder, and its model in transformers."""

    path: Path
    model: Any

    def logits(self, tokens: list[int]) -> Any:
        """f32 [V] after the last token."""
        import torch

        with torch.no_grad():
            return self.model(torch.tensor([tokens])).logits[0, -1].numpy()

    def config(
        self, kind: type[InferenceConfig] = InferenceConfig, **given: Any
    ) -> InferenceConfig:
        """Its configuration, with attributes of NeuronConfig."""
        given = {"torch_dtype": "float32", "seq_len": 64, "batch_size": 3, **given}
        return kind(NeuronConfig(**given), load_config=load_pretrained_config(self.path))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A random Llama of two layers with a tokenizer."""
    folder = tmp_path_factory.mktemp("llama") / "model"
    model = ORACLES["llama"].model(vocab_size=300)
    save(model, folder)
    save_tokenizer(folder)
    return Checkpoint(folder, model)


@pytest.fixture(scope="session")
def compiled(llama: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its application, compiled for three rows of 64 tokens in f32."""
    folder = tmp_path_factory.mktemp("compiled") / "llama"
    NeuronLlamaForCausalLM(llama.path, llama.config()).compile(folder)
    return folder
