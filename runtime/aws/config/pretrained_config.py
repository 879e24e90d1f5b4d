"""Hooks that load the model's attributes of an InferenceConfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.config.inference_config import InferenceConfig
from graphgen.runtime.checkpoint.model_config import model_config


class HuggingFaceConfig(Protocol):
    """The part of transformers' ``PretrainedConfig`` that is read."""

    def to_dict(self) -> dict[str, object]:
        """The attributes by name."""
        ...


def load_pretrained_config(
    model_path: str | Path | None = None, *, hf_config: HuggingFaceConfig | None = None
) -> Callable[[InferenceConfig], None]:
    """A ``load_config`` hook that sets the attributes of a ``config.json``.

    The element type of the checkpoint does not change ``neuron_config.torch_dtype``.

    Args:
        model_path: a checkpoint: a folder, a GGUF file, a known name, or a name of the hub, with
            an organization or without (``gpt2``).
        hf_config: a ``PretrainedConfig`` to take the attributes from instead; its
            ``attribute_map`` is inherited.

    Raises:
        GraphgenError: GG0705 unless one of both is given; the hook raises GG0601 for a checkpoint
            that cannot be read.
    """
    if (model_path is None) == (hf_config is None):
        raise GraphgenError(
            "GG0705",
            "load_pretrained_config takes a model path or hf_config, one of both",
            help="load_pretrained_config(MODEL_PATH)",
        )

    def load_config(config: InferenceConfig) -> None:
        if hf_config is None:
            values: Mapping[str, object] = model_config(str(model_path), plain_names=True)
        else:
            values = hf_config.to_dict()
            config.attribute_map = dict(getattr(hf_config, "attribute_map", {}))
        for name, value in values.items():
            setattr(config, name, value)

    return load_config
