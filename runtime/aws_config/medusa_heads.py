"""The heads of Medusa of an application's model, which are in the folder of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphgen.runtime.aws_config.medusa_checks import medusa_heads
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.speculation.medusa_checkpoint import heads_form, with_medusa


def config_with_heads(
    config: NeuronConfig, model: Mapping[str, object], model_path: str
) -> Mapping[str, object]:
    """A ``config.json`` with the form of the heads that the attributes request (GG0602)."""
    heads = medusa_heads(config)
    return {**model, **heads_form(_folder(model_path), heads)} if heads else model


def checkpoint_with_heads(
    config: NeuronConfig, checkpoint: Checkpoint, model_path: str
) -> Checkpoint:
    """A checkpoint with the heads that the attributes request (GG0602)."""
    heads = medusa_heads(config)
    return with_medusa(checkpoint, _folder(model_path), heads) if heads else checkpoint


def _folder(model_path: str) -> Path:
    return locate(model_path, plain_names=True) or Path(model_path)
