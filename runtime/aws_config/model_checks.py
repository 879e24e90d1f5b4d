"""Attributes of a NeuronConfig that state something about the model or its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.models import read_model_config
from graphgen.read_file import is_file, is_folder
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.quantization_rows import quantized_checkpoint, scale_scheme
from graphgen.runtime.checkpoint.open_checkpoint import as_stored, open_checkpoint

# Element types of checkpoints by AWS's names.
_ELEMENTS: Final[Mapping[str, str]] = {"int8": "s8", "f8e4m3": "f8e4m3fn"}


def check_model(config: NeuronConfig, model: Mapping[str, object]) -> None:
    """Refuse attributes that contradict the model.

    Args:
        config: the attributes.
        model: a ``config.json``.

    Raises:
        GraphgenError: GG0903 for ``qk_layernorm`` of a model without such norms, and for 8-bit
            products of an MLP whose weights are not quantized.
    """
    check_quantized_mlp(config.value, config.owner, model)
    normalizes = bool(getattr(read_model_config(model), "qk_norm", False))
    if config.value("qk_layernorm") and not normalizes:
        raise GraphgenError(
            "GG0903",
            f"{config.owner}.qk_layernorm = True: a model of type {model.get('model_type')} does "
            "not normalize queries and keys",
            help="leave qk_layernorm out: the model's own configuration decides",
        )


def check_quantized_mlp(
    read: Callable[[str], object], owner: str, model: Mapping[str, object]
) -> None:
    """Refuse 8-bit products of an MLP whose weights are not quantized (GG0903).

    Args:
        read: gives an attribute by its name.
        owner: the class of the attributes.
        model: a ``config.json``.
    """
    quantized = read("quantized") or model.get("quantization_config")
    if read("quantized_mlp_kernel_enabled") and not quantized:
        raise GraphgenError(
            "GG0903",
            f"{owner}.quantized_mlp_kernel_enabled = True: the weights of the MLP are not "
            "quantized",
            help="set quantized=True with quantized_checkpoints_path, or give a quantized "
            "checkpoint",
        )


def model_notes(config: NeuronConfig, model: Mapping[str, object]) -> tuple[str, ...]:
    """Remarks on attributes that have no effect on this model; arguments as of check_model."""
    if not config.value("flash_decoding_enabled"):
        return ()
    ranks, heads = cast(int, config.value("tp_degree")), _key_value_heads(model)
    if heads is None or ranks > heads:
        return ()
    return (
        f"{config.owner}.flash_decoding_enabled = True has no effect: with tp_degree {ranks} each "
        f"rank has some of the {heads} KV heads to itself",
    )


def _key_value_heads(model: Mapping[str, object]) -> int | None:
    found: object = getattr(read_model_config(model), "num_key_value_heads", None)
    return found if isinstance(found, int) else None


def stored_quantization(
    config: NeuronConfig, model: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    """The ``quantization_config`` of the quantized checkpoint; empty where there is none.

    Args:
        config: names the checkpoint: a folder, or a file of weights as NxD Inference writes it.
        model: a ``config.json``, for a checkpoint that has none of its own.

    Raises:
        GraphgenError: GG0601 if the checkpoint cannot be read, GG0502 if its scheme is not, GG0903
            if it is not quantized, or otherwise than the configuration says.
    """
    path = quantized_checkpoint(config)
    if path is None:
        return {}
    stated = _stated(path, _state(path), json.dumps(model or {}, sort_keys=True, default=str))
    if not isinstance(stated, dict):
        raise GraphgenError(
            "GG0903",
            f"{config.owner}.quantized_checkpoints_path = {str(path)!r}: the checkpoint there is "
            "not quantized",
            help="write it with save_quantized_state_dict or graphgen quantize, or name a path "
            "that does not exist: weights are then quantized while they are loaded",
        )
    found = cast("Mapping[str, object]", stated)
    if found.get("quant_method") == "aws":
        dtype = str(config.value("quantization_dtype"))
        _check_equal(config, "quantization_dtype", dtype, str(found["quantization_dtype"]))
        scheme = scale_scheme(config)
        _check_equal(config, "quantization_type", scheme, str(found["quantization_type"]))
    return found


# Size and time of the last change of each file by name.
_State = tuple[tuple[str, int, int], ...]


def _state(path: Path) -> _State:
    files = sorted(path.iterdir()) if is_folder(path) else [path]
    found = [(file.name, file.stat()) for file in files if is_file(file)]
    return tuple([(name, stat.st_size, stat.st_mtime_ns) for name, stat in found])


@lru_cache(maxsize=8)
def _stated(path: Path, state: _State, model: str) -> object:
    """The ``quantization_config`` at ``path``; headers are read once while its files stay."""
    checkpoint = open_checkpoint(path, json.loads(model))
    # A GGUF file's weights would be dequantized without this.
    gguf = checkpoint.path.suffix == ".gguf"
    return as_stored(checkpoint, keep=gguf).config.get("quantization_config")


def _check_equal(config: NeuronConfig, name: str, given: str, stored: str) -> None:
    """Refuse an attribute that contradicts the quantized checkpoint (GG0903)."""
    if _ELEMENTS.get(given, given) != stored:
        known = {element: dtype for dtype, element in _ELEMENTS.items()}
        raise GraphgenError(
            "GG0903",
            f"{config.owner}.{name} = {given!r}: the checkpoint at quantized_checkpoints_path has "
            f"{known.get(stored, stored)}",
            help=f"set {name} to that, or write the checkpoint again",
        )
