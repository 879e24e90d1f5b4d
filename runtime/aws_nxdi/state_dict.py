"""State dictionaries of checkpoints, and checkpoints of state dictionaries."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.eval.arithmetic import NUMPY
from graphgen.passes.quantization.schemes import weight_scheme
from graphgen.runtime.aws_config.quantization_rows import quantized_checkpoint, scale_scheme
from graphgen.runtime.aws_nxdi.base_model import is_traced
from graphgen.runtime.aws_nxdi.user_arrays import as_numpy, as_user_array, is_tensor
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Checkpoint, TensorInfo
from graphgen.runtime.checkpoint.name_mapping import RenamedCheckpoint
from graphgen.runtime.checkpoint.open_checkpoint import as_stored, open_checkpoint
from graphgen.runtime.progress import Progress, Silent
from graphgen.runtime.quantization.quantize_checkpoint import (
    QuantizationRequest,
    quantize_checkpoint,
    quantized_tensors,
    write_state,
)

if TYPE_CHECKING:
    from graphgen.runtime.aws_config.inference_config import InferenceConfig
    from graphgen.runtime.aws_nxdi.application_base import NeuronApplicationBase

# Torch tensors or NumPy arrays by name.
StateDict = dict[str, object]
_SAMPLE = 1 << 16
_NAME_OF = {dtype: name for name, dtype in NUMPY.items() if name in NUMPY_DTYPES}


def read_state_dict(
    model_path: str, prefix: tuple[str, str], model: Mapping[str, object]
) -> StateDict:
    """The tensors of a checkpoint by the names it has.

    Args:
        model_path: the checkpoint.
        prefix: names that start with the first get the second instead.
        model: the model as a ``config.json``, for a checkpoint that has none.
    """
    checkpoint = open_path(model_path, model)
    if isinstance(checkpoint, RenamedCheckpoint):
        checkpoint = checkpoint.base
    return {
        renamed(name, prefix): as_user_array(checkpoint.read(name)) for name in checkpoint.tensors()
    }


def open_path(model_path: str, model: Mapping[str, object] | None = None) -> Checkpoint:
    """The checkpoint at a path, or of a name among the downloaded ones (GG06xx).

    Args:
        model_path: the path or the name.
        model: the model as a ``config.json``, for a checkpoint that has none.
    """
    return open_checkpoint(locate(model_path, plain_names=True) or Path(model_path), model)


def renamed(name: str, prefix: tuple[str, str]) -> str:
    """A name with the first prefix replaced by the second."""
    old, new = prefix
    return new + name.removeprefix(old) if old and name.startswith(old) else name


def checkpoint_of(
    kind: type[NeuronApplicationBase],
    model_path: str,
    config: InferenceConfig,
    model: Mapping[str, object],
    names: Collection[str],
) -> Checkpoint:
    """The weights of an application, by the names of its family.

    A class with its own ``get_state_dict`` or ``convert_hf_to_neuron_state_dict`` decides; for
    others tensors are read from the files when they are needed.

    Args:
        kind: the class.
        model_path: the checkpoint.
        config: handed to the methods of the class.
        model: the model as a ``config.json``.
        names: of the weights that the model's family reads.
    """
    from graphgen.runtime.aws_nxdi.application_base import NeuronApplicationBase as Base

    own = [
        name
        for name in ("get_state_dict", "convert_hf_to_neuron_state_dict")
        if getattr(kind, name).__qualname__ != getattr(Base, name).__qualname__
    ]
    if not own and not is_traced(kind.model_cls()):
        # A GGUF file's weights stay narrow if it is the quantized checkpoint.
        keep = model_path == str(quantized_checkpoint(config.neuron_config))
        found = open_path(model_path, config.to_hf() if keep else None)
        return ConfiguredCheckpoint(as_stored(found, keep=keep), model)
    prefix = kind.state_dict_prefixes()
    tensors = kind.get_state_dict(model_path, config)
    for name in names:
        key = renamed(name, prefix)
        if name not in tensors and key in tensors:
            tensors[name] = tensors.pop(key)
    return StateDictCheckpoint(model_path, model, tensors)


def with_buffers(
    checkpoint: Checkpoint, held: Mapping[str, Array], names: Collection[str]
) -> Checkpoint:
    """A checkpoint with the buffers of a model in PyTorch that it does not hold itself.

    Args:
        checkpoint: of the model.
        held: values of the buffers, by name.
        names: of the weights that the programs read.
    """
    found = checkpoint.tensors()
    lacking = {name: held[name] for name in names if name not in found and name in held}
    if not lacking or not isinstance(checkpoint, StateDictCheckpoint):
        return checkpoint
    return checkpoint.extended(lacking)


class ConfiguredCheckpoint:
    """A checkpoint with the configuration of an application.

    Args:
        base: the checkpoint.
        config: the model as a ``config.json``.
    """

    def __init__(self, base: Checkpoint, config: Mapping[str, object]) -> None:
        self.base: Final = base
        self.config: Final[Mapping[str, object]] = config

    @property
    def path(self) -> Path:
        """The file or the folder that was opened."""
        return self.base.path

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by name; see :class:`Checkpoint`."""
        return self.base.tensors()

    def read(self, name: str) -> Array:
        """The tensor ``name``; see :class:`Checkpoint`."""
        return self.base.read(name)

    def fingerprint(self) -> str:
        """Identity of the contents; see :class:`Checkpoint`."""
        return self.base.fingerprint()


class StateDictCheckpoint:
    """A state dictionary as a checkpoint.

    Args:
        model_path: path of the checkpoint it was made of, for errors.
        config: the model as a ``config.json``.
        tensors: name to tensor, by the names of the model's family.
    """

    def __init__(self, model_path: str, config: Mapping[str, object], tensors: StateDict) -> None:
        self.path: Final = Path(model_path)
        self.config: Final[Mapping[str, object]] = config
        self._arrays = {name: as_numpy(value) for name, value in tensors.items()}

    def extended(self, arrays: Mapping[str, Array]) -> StateDictCheckpoint:
        """The same with more tensors."""
        return StateDictCheckpoint(str(self.path), self.config, {**self._arrays, **arrays})

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by name; see :class:`Checkpoint`."""
        return {name: self._info(name, array) for name, array in self._arrays.items()}

    def _info(self, name: str, array: Array) -> TensorInfo:
        if array.dtype not in _NAME_OF:
            raise GraphgenError(
                "GG0602",
                f"the state dictionary has '{name}' as {array.dtype}",
                where=str(self.path),
                help=f"element types: {', '.join(NUMPY_DTYPES)}",
            )
        return TensorInfo(name, array.shape, _NAME_OF[array.dtype])

    def read(self, name: str) -> Array:
        """The tensor ``name`` (GG0602); see :class:`Checkpoint`."""
        if name not in self._arrays:
            raise GraphgenError(
                "GG0602", f"the state dictionary has no '{name}'", where=str(self.path)
            )
        return self._arrays[name]

    def fingerprint(self) -> str:
        """SHA-256 of configuration, names, shapes and both ends of every tensor."""
        hasher = hashlib.sha256(repr(sorted(self.config.items())).encode())
        for name, array in sorted(self._arrays.items()):
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            hasher.update(f"\n{name} {array.dtype} {array.shape} ".encode())
            hasher.update(data[:_SAMPLE].tobytes() + data[-_SAMPLE:].tobytes())
        return hasher.hexdigest()


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
    from graphgen.runtime.aws_nxdi.application_base import NeuronApplicationBase as Base

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
