"""Checkpoints with a planted error in the weights of one layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphgen.eval import Array
from graphgen.runtime.checkpoint.interfaces import Checkpoint, TensorInfo
from tests.oracles.families import save_tokenizer
from tests.oracles.llama import write_llama


@dataclass(frozen=True)
class PlantedCheckpoint:
    """A checkpoint whose tensors with ``part`` in their names are changed by random factors.

    Attributes:
        original: the checkpoint.
        part: of the names, such as ``.layers.12.``.
        error: standard deviation of the relative error of each weight.
    """

    original: Checkpoint
    part: str
    error: float = 1e-2

    @property
    def path(self) -> Path:
        return self.original.path

    @property
    def config(self) -> Mapping[str, object]:
        return self.original.config

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self.original.tensors()

    def fingerprint(self) -> str:
        return self.original.fingerprint()

    def read(self, name: str) -> Array:
        array = self.original.read(name)
        return with_error(array, self.error) if self.part in name else array


def with_error(array: Array, error: float) -> Array:
    """The array times random factors around 1."""
    factors = 1 + error * np.random.default_rng(0).standard_normal(array.shape)
    return (array.astype(np.float64) * factors).astype(array.dtype)


def write_planted_pair(folder: Path, layer: int, layers: int = 4) -> tuple[Path, Path]:
    """Two mini checkpoints with tokenizers: a random one, and the same with a planted error."""
    import torch

    good, bad = folder / "good", folder / "bad"
    for path in (good, bad):
        model = write_llama(path, num_hidden_layers=layers, vocab_size=300)
        save_tokenizer(path)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if f".layers.{layer}." in name:
                tensor.copy_(torch.from_numpy(with_error(tensor.numpy(), 1e-2)))
    model.save_pretrained(bad)
    return good, bad
