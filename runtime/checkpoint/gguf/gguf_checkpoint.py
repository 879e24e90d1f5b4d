"""Read a model from GGUF files under its Hugging Face names and in Hugging Face layout."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quant_shape_to_byte_shape

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf.gguf_architectures import ARCHITECTURES
from graphgen.runtime.checkpoint.gguf.gguf_config import read_config
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufTensor
from graphgen.runtime.checkpoint.gguf.gguf_order import Restore
from graphgen.runtime.checkpoint.gguf.gguf_parts import joined, read_parts
from graphgen.runtime.checkpoint.gguf.gguf_rope import ROPE_FACTORS_TENSOR
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Array, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import unreadable

_PLAIN: Final[Mapping[GGMLQuantizationType, str]] = {
    GGMLQuantizationType.F32: "f32",
    GGMLQuantizationType.F16: "f16",
    GGMLQuantizationType.BF16: "bf16",
    GGMLQuantizationType.F64: "f64",
    GGMLQuantizationType.I8: "s8",
    GGMLQuantizationType.I16: "s16",
    GGMLQuantizationType.I32: "s32",
    GGMLQuantizationType.I64: "s64",
}


class GgufCheckpoint:
    """The weights and the configuration of one GGUF file or of all parts of one, memory-mapped.

    Quantised tensors are declared, and come, as f32. A GGUF name that has no Hugging Face
    equivalent is kept as it is, so that it shows up when the tensors are matched with the model.

    Args:
        path: the ``.gguf`` file, or any file of a model that was split.

    Raises:
        GraphgenError: GG0601 for a damaged file, GG0501, GG0502 or GG0503 for a model or a setting
            that cannot be translated.
    """

    def __init__(self, path: Path) -> None:
        self._parts: Final = read_parts(path)
        header = joined(self._parts)
        self.path: Final = header.file.path
        self.config: Final[Mapping[str, object]] = read_config(header)
        self._architecture: Final = ARCHITECTURES[str(header.metadata["general.architecture"])]
        self._entries: Final[dict[str, GgufTensor]] = {}
        for stored, entry in header.tensors.items():
            if stored == ROPE_FACTORS_TENSOR:
                continue  # it has become part of the configuration
            name = self._architecture.hf_name(stored)
            if name in self._entries:
                raise unreadable(path, f"two GGUF tensors are '{name}'")
            self._entries[name] = entry

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its Hugging Face name, in file order; reads no tensor data."""
        return {
            name: TensorInfo(name, self._shape(entry), _PLAIN.get(entry.kind, "f32"))
            for name, entry in self._entries.items()
        }

    def _shape(self, entry: GgufTensor) -> tuple[int, ...]:
        restore = self._architecture.restore_of(entry.name)
        return restore.shape(entry.shape) if restore else entry.shape

    def read(self, name: str) -> Array:
        """The tensor ``name``, dequantised, its values as Hugging Face has them.

        Raises:
            GraphgenError: GG0602 if there is no such tensor, GG0601 if it cannot be decoded.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise GraphgenError("GG0602", f"there is no tensor '{name}'", where=str(self.path))
        values = self._decode(entry)
        restore = self._architecture.restore_of(entry.name)
        return self._restored(entry, values, restore) if restore else values

    def fingerprint(self) -> str:
        """Identity of the contents as 64 hexadecimal digits; see :class:`Checkpoint`."""
        digests = [
            part.file.digest(
                part.data_offset, [(entry.offset, entry.nbytes) for entry in part.tensors.values()]
            )
            for part in self._parts
        ]
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    def _decode(self, entry: GgufTensor) -> Array:
        what = f"the data of tensor '{entry.name}'"
        plain = _PLAIN.get(entry.kind)
        if plain is not None:
            dtype = NUMPY_DTYPES[plain]
            count = entry.nbytes // dtype.itemsize
            return entry.file.array(entry.offset, count, dtype, what).reshape(entry.shape)
        if not entry.nbytes:
            return np.empty(entry.shape, np.float32)
        blocks = entry.file.array(entry.offset, entry.nbytes, NUMPY_DTYPES["u8"], what)
        rows = blocks.reshape(quant_shape_to_byte_shape(entry.shape, entry.kind))
        try:
            # A scale that is not finite gives values that are not finite; that is no warning's job.
            with np.errstate(all="ignore"):
                return dequantize(rows, entry.kind)
        except RuntimeError as error:  # a kind that the package has no rule for
            raise unreadable(
                entry.file.path,
                f"tensor '{entry.name}' is quantised as {entry.kind.name}, "
                f"which the gguf package cannot dequantise",
                offset=entry.offset,
            ) from error

    def _restored(self, entry: GgufTensor, values: Array, restore: Restore) -> Array:
        """The values as Hugging Face has them; rows must divide over the heads (GG0601)."""
        heads = self.config[restore.heads] if restore.heads else 1
        assert isinstance(heads, int)
        if entry.shape[0] % (restore.parts * heads):
            what = "heads of even size" if restore.parts == 2 else "heads with q, k and v each"
            raise unreadable(
                entry.file.path,
                f"tensor '{entry.name}' has {entry.shape[0]} rows, which {heads} {what} "
                f"cannot share",
            )
        return restore.values(values, heads)
