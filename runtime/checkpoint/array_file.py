"""Weights in one file of arrays, ``.safetensors`` or ``.npz``, without a model's configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.exec.inputs import read_arrays
from graphgen.runtime.checkpoint.interfaces import CONVERT, NUMPY_DTYPES, Array, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import no_such_tensor
from graphgen.runtime.checkpoint.safetensors_file import SafetensorsFile

ENDINGS: Final = (".safetensors", ".npz")


class ArrayFileCheckpoint:
    """The weights of a graph of one's own, by the names of its interface.

    Args:
        path: a ``.safetensors`` or ``.npz`` file.

    Raises:
        GraphgenError: GG0601, GG0705 for a file that cannot be read, or elements of a type that
            weights cannot have.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.config: Final[Mapping[str, object]] = {}
        self._file: Final = SafetensorsFile(path) if path.suffix == ENDINGS[0] else NpzFile(path)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every array by its name, in file order."""
        return self._file.tensors()

    def read(self, name: str) -> Array:
        """The array ``name`` (GG0602 if there is none)."""
        return self._file.read(name)

    def fingerprint(self) -> str:
        """Identity of the contents as 64 hexadecimal digits."""
        return self._file.digest()


class NpzFile:
    """The arrays of one ``.npz`` file, as ``numpy.savez`` writes it, in memory."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._arrays: Final = read_arrays(str(path))
        names = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
        self._info: Final[dict[str, TensorInfo]] = {}
        for name, array in self._arrays.items():
            if array.dtype not in names:
                raise GraphgenError(
                    "GG0601",
                    f"the array '{name}' has elements of type {array.dtype}",
                    where=str(path),
                    help="NumPy stores bfloat16 as raw bytes: use safetensors, or save float32"
                    if array.dtype.kind == "V"
                    else CONVERT,
                )
            self._info[name] = TensorInfo(name, array.shape, names[array.dtype])

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every array by its name, in file order."""
        return self._info

    def read(self, name: str) -> Array:
        """The array ``name`` (GG0602 if there is none)."""
        if name not in self._arrays:
            raise no_such_tensor(self.path, name)
        return self._arrays[name]

    def digest(self, extra: bytes = b"") -> str:
        """Identity of the contents and of ``extra`` as 64 hexadecimal digits."""
        hasher = hashlib.sha256(extra)
        for name, array in self._arrays.items():
            hasher.update(f"{name} {array.dtype} {array.shape}\n".encode())
            hasher.update(array.tobytes())
        return hasher.hexdigest()
