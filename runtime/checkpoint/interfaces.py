"""The interface of checkpoints, common to all file formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from graphgen.eval.arithmetic import NUMPY, Array

_ELEMENT_TYPES: Final = (
    *("f32", "bf16", "f16", "f64", "s8", "s16", "s32", "s64", "u8", "pred"),
    *("f8e4m3fn", "f8e5m2", "f8e8m0fnu"),
)
NUMPY_DTYPES: Final[Mapping[str, np.dtype[np.generic]]] = {n: NUMPY[n] for n in _ELEMENT_TYPES}
"""NumPy's type of every element type that a checkpoint can hold, by graphgen's name."""

CONVERT: Final = "save the model again with its weights in float32, bfloat16 or float16"
"""The help line of an error about a tensor of another type."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a checkpoint, known without reading its data.

    Attributes:
        name: the Hugging Face name, such as ``model.layers.0.self_attn.q_proj.weight``.
        shape: the sizes, outermost first (a weight is ``(out, in)``).
        dtype: a key of :data:`NUMPY_DTYPES`; the type :meth:`Checkpoint.read` returns.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


class TensorFile(Protocol):
    """One file with tensors in it, of a checkpoint that may have several."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name, in file order; reads no tensor data."""
        ...

    def read(self, name: str) -> Array:
        """The tensor ``name``, a view of the file (GG0602 if there is none)."""
        ...

    def digest(self, extra: bytes = b"") -> str:
        """Identity of the contents and of ``extra``; see :meth:`Checkpoint.fingerprint`."""
        ...


class Checkpoint(Protocol):
    """The weights and the configuration of one model, on disk."""

    @property
    def path(self) -> Path:
        """The file or the folder that was opened."""
        ...

    @property
    def config(self) -> Mapping[str, object]:
        """The configuration under the names of a Hugging Face ``config.json``."""
        ...

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its Hugging Face name, in file order; reads no tensor data."""
        ...

    def read(self, name: str) -> Array:
        """The tensor ``name`` in its declared shape and dtype.

        The result may be a read-only view of the memory-mapped file. A tensor stored quantised
        comes dequantised, and is declared, as f32.

        Raises:
            GraphgenError: GG0602 if there is no such tensor, GG0601 if it cannot be decoded.
        """
        ...

    def fingerprint(self) -> str:
        """Identity of the contents as 64 hexadecimal digits, cheap to compute.

        SHA-256 of the headers and configuration, the file size, and the first and last 64 KiB of
        every tensor. It does not depend on the path or the modification time. A change confined to
        the inside of a tensor larger than 128 KiB is not seen.
        """
        ...


class CheckpointView:
    """Base of views under other tensors; :class:`Checkpoint` has the rest of the interface.

    Args:
        base: the checkpoint under its stored names.
    """

    def __init__(self, base: Checkpoint) -> None:
        self.base: Final = base

    @property
    def path(self) -> Path:
        """The file or the folder that was opened."""
        return self.base.path

    @property
    def config(self) -> Mapping[str, object]:
        """The configuration under the names of a Hugging Face ``config.json``."""
        return self.base.config

    def fingerprint(self) -> str:
        """Identity of the contents; see :class:`Checkpoint`."""
        return self.base.fingerprint()
