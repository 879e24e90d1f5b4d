"""The chain by which NxD Inference makes a quantized checkpoint: generate, prepare, save.

Where no class of the user takes part in it, tensors go from file to file, one after the other;
otherwise the whole state dictionary is in memory, as in the library.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.passes.quantize.schemes import weight_scheme
from graphgen.runtime.aws.application.state_dict import StateDict, open_path
from graphgen.runtime.aws.application.user_arrays import as_numpy, as_user_array, is_tensor
from graphgen.runtime.aws.config.model_checks import scale_scheme
from graphgen.runtime.progress_callback import Progress, Silent
from graphgen.runtime.quantization.quantize_checkpoint import (
    QuantizationRequest,
    quantize_checkpoint,
    quantized_tensors,
    write_state,
)

if TYPE_CHECKING:
    from graphgen.runtime.aws.application.application_base import NeuronApplicationBase
    from graphgen.runtime.aws.config.inference_config import InferenceConfig

_FORM = "nxdi"
_CHAIN = ("generate_quantized_state_dict", "prepare_quantized_state_dict")


class HasState(Protocol):
    """The part of a model that ``prepare_quantized_state_dict`` reads."""

    def state_dict(self) -> StateDict:
        """Tensors by name."""
        ...


class QuantizedState:
    """Quantized tensors in the place of the model that torch would quantize.

    Args:
        tensors: by name.
    """

    def __init__(self, tensors: StateDict) -> None:
        self._tensors: Final = tensors

    def state_dict(self) -> StateDict:
        """The tensors by name, as of a torch module."""
        return dict(self._tensors)


def quantized_state(model_path: str, config: InferenceConfig) -> QuantizedState:
    """All tensors of a checkpoint, the weights of products as ``X.weight`` and ``X.scale``.

    Args:
        model_path: the checkpoint.
        config: says how to quantize.

    Raises:
        GraphgenError: GG0705 for a scheme that does not exist, GG06xx for the checkpoint.
    """
    rows, arrays = quantized_tensors(open_path(str(model_path)), _request(config), Silent())
    return QuantizedState(
        {
            name: as_user_array(array.reshape(row.shape))
            for (name, row), array in zip(rows, arrays, strict=True)
        }
    )


def prepared_state(model: object) -> StateDict:
    """The state dictionary of a quantized model: torch's qint8 as int8 and scales.

    Args:
        model: has ``state_dict()``.
    """
    found: StateDict = {}
    for name, value in cast(HasState, model).state_dict().items():
        if is_tensor(value) and cast(_Quantized, value).is_quantized:
            tensor = cast(_Quantized, value)
            found[name] = tensor.int_repr()
            found[f"{name.removesuffix('.weight')}.scale"] = as_user_array(_scale(tensor))
        else:
            found[name] = value
    return found


class _Quantized(Protocol):
    """The part of torch's quantized tensors that is used."""

    is_quantized: bool

    def int_repr(self) -> object: ...
    def qscheme(self) -> object: ...
    def q_scale(self) -> float: ...
    def q_per_channel_scales(self) -> object: ...


def _scale(tensor: _Quantized) -> Array:
    """f32 [1], or [out,1] with a scale a channel."""
    if "channel" in str(tensor.qscheme()):
        return as_numpy(tensor.q_per_channel_scales()).astype(np.float32).reshape(-1, 1)
    return np.array([tensor.q_scale()], np.float32)


def save_quantized_state(
    kind: type[NeuronApplicationBase], model_path: str, config: InferenceConfig, progress: Progress
) -> None:
    """Write the quantized checkpoint to ``quantized_checkpoints_path``, whole or not at all.

    Args:
        kind: the class whose methods make it.
        model_path: the checkpoint.
        config: says where and how.
        progress: notified of long tasks.

    Raises:
        GraphgenError: GG0908 without a path, GG0704 if the folder is taken, GG0705 and GG06xx as
            :func:`quantized_state`.
    """
    from graphgen.runtime.aws.application.application_base import NeuronApplicationBase as Base

    path = config.neuron_config.value("quantized_checkpoints_path")
    if path is None:
        raise GraphgenError(
            "GG0908",
            "save_quantized_state_dict: the configuration has no quantized_checkpoints_path",
            help="set quantized=True and quantized_checkpoints_path, the folder to write",
        )
    output, checkpoint = Path(str(path)), open_path(str(model_path))
    if all(getattr(kind, name).__qualname__ == getattr(Base, name).__qualname__ for name in _CHAIN):
        quantize_checkpoint(checkpoint, output, _request(config), progress)
        return
    state = kind.generate_quantized_state_dict(model_path, config)
    write_state(checkpoint, output, {name: as_numpy(value) for name, value in state.items()})


def _request(config: InferenceConfig) -> QuantizationRequest:
    read = config.neuron_config.value
    scheme = weight_scheme(str(read("quantization_dtype")), scale_scheme(config.neuron_config))
    skip = cast("tuple[str, ...] | None", read("modules_to_not_convert"))
    return QuantizationRequest(scheme, tuple(skip or ()), _FORM)
