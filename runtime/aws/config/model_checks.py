"""Attributes of a NeuronConfig that state something about the model or its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.models import read_model_config
from graphgen.runtime.aws.config.neuron_config import NeuronConfig


def check_model(config: NeuronConfig, model: Mapping[str, object]) -> None:
    """Refuse attributes that contradict the model.

    Args:
        config: the attributes.
        model: a ``config.json``.

    Raises:
        GraphgenError: GG0903 for ``qk_layernorm`` of a model without such norms, GG0904 for a
            quantized checkpoint to read.
    """
    normalizes = bool(getattr(read_model_config(model), "qk_norm", False))
    if config.value("qk_layernorm") and not normalizes:
        raise GraphgenError(
            "GG0903",
            f"{config.owner}.qk_layernorm = True: a model of type {model.get('model_type')} does "
            "not normalize queries and keys",
            help="leave qk_layernorm out: the model's own configuration decides",
        )
    check_quantized_path(config)


def check_quantized_path(config: NeuronConfig) -> None:
    """Refuse a quantized checkpoint that is there: it would be passed over.

    Raises:
        GraphgenError: GG0904.
    """
    path = config.value("quantized_checkpoints_path")
    if config.value("quantized") and Path(str(path)).exists():
        raise GraphgenError(
            "GG0904",
            f"{config.owner}.quantized_checkpoints_path = {path!r}: reading a quantized checkpoint "
            "is not built yet",
            help="name a path that does not exist: the weights of the model's own checkpoint are "
            "quantized while they are loaded",
        )
