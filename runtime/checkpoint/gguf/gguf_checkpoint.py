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
from graphgen.runtime.checkpoint.gguf.gguf_architecture import GgufArchitecture, Restore
from graphgen.runtime.checkpoint.gguf.gguf_architectures import ARCHITECTURES
from graphgen.runtime.checkpoint.gguf.gguf_header import (
    GgufHeader,
    GgufTensor,
    GgufValue,
    join_parts,
    read_parts,
)
from graphgen.runtime.checkpoint.gguf.gguf_rope import ROPE_FACTORS_TENSOR
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Array, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import no_such_tensor, unreadable

_UNQUANTIZED: Final[Mapping[GGMLQuantizationType, str]] = {
    GGMLQuantizationType.F32: "f32",
    GGMLQuantizationType.F16: "f16",
    GGMLQuantizationType.BF16: "bf16",
    GGMLQuantizationType.F64: "f64",
    GGMLQuantizationType.I8: "s8",
    GGMLQuantizationType.I16: "s16",
    GGMLQuantizationType.I32: "s32",
    GGMLQuantizationType.I64: "s64",
}
# Architecture settings that are accepted at the value the supported models have anyway.
_REQUIRED_VALUES: Final[Mapping[str, GgufValue]] = {
    "attention.causal": True,
    "attention.sliding_window": 0,
    "expert_count": 0,
    "expert_used_count": 0,
    "use_parallel_residual": False,
}
# Describes how the file was converted, not what the model computes.
_IGNORED: Final = frozenset({"tensor_data_layout"})


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
        header = join_parts(self._parts)
        self.path: Final = header.file.path
        self._architecture: Final = _architecture(header)
        self.config: Final[Mapping[str, object]] = _read_config(header, self._architecture)
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
            name: TensorInfo(name, self._shape(entry), _UNQUANTIZED.get(entry.kind, "f32"))
            for name, entry in self._entries.items()
        }

    def _shape(self, entry: GgufTensor) -> tuple[int, ...]:
        restore = self._architecture.restore_of(entry.name)
        return entry.shape[::-1] if restore and restore.transposed else entry.shape

    def read(self, name: str) -> Array:
        """The tensor ``name``, dequantised, its values as Hugging Face has them.

        Raises:
            GraphgenError: GG0602 if there is no such tensor, GG0601 if it cannot be decoded.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise no_such_tensor(self.path, name)
        restore = self._architecture.restore_of(entry.name)
        values = _decode(entry)
        return self._restored(entry, values, restore) if restore else values

    def kinds(self) -> Mapping[str, str]:
        """GGUF's name of the kind of each matrix that is not stored the other way round."""
        restores = {
            name: self._architecture.restore_of(e.name) for name, e in self._entries.items()
        }
        return {
            name: entry.kind.name
            for name, entry in self._entries.items()
            if len(entry.shape) == 2 and not ((r := restores[name]) and r.transposed)
        }

    def blocks(self, name: str) -> Array:
        """The bytes u8 [out, bytes of a row] of a quantized tensor, rows as Hugging Face has them.

        Args:
            name: of :meth:`kinds`.
        """
        entry = self._entries[name]
        what = f"the data of tensor '{entry.name}'"
        rows = entry.file.array(entry.offset, entry.nbytes, NUMPY_DTYPES["u8"], what)
        rows = rows.reshape(quant_shape_to_byte_shape(entry.shape, entry.kind))
        restore = self._architecture.restore_of(entry.name)
        return self._restored(entry, rows, restore) if restore else rows

    def _restored(self, entry: GgufTensor, values: Array, restore: Restore) -> Array:
        """The values as Hugging Face has them; rows must divide over the heads (GG0601)."""
        heads = self.config[restore.heads] if restore.heads else 1
        assert isinstance(heads, int)
        if entry.shape[0] % (restore.parts * heads):
            what = "heads of even size" if restore.parts == 2 else "heads with q, k and v each"
            raise entry.file.error(
                f"tensor '{entry.name}' has {entry.shape[0]} rows, which {heads} {what} "
                f"cannot share"
            )
        return restore.values(values, heads)

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


def _decode(entry: GgufTensor) -> Array:
    """The stored values, dequantised to f32 if they are quantised (GG0601)."""
    what = f"the data of tensor '{entry.name}'"
    name = _UNQUANTIZED.get(entry.kind)
    if name is not None:
        dtype = NUMPY_DTYPES[name]
        count = entry.nbytes // dtype.itemsize
        return entry.file.array(entry.offset, count, dtype, what).reshape(entry.shape)
    if not entry.nbytes:
        return np.empty(entry.shape, np.float32)
    blocks = entry.file.array(entry.offset, entry.nbytes, NUMPY_DTYPES["u8"], what)
    rows = blocks.reshape(quant_shape_to_byte_shape(entry.shape, entry.kind))
    try:
        # A scale that is not finite gives values that are not finite, without a NumPy warning.
        with np.errstate(all="ignore"):
            return dequantize(rows, entry.kind)
    except RuntimeError as error:  # a kind that the package has no rule for
        raise entry.file.error(
            f"tensor '{entry.name}' is quantised as {entry.kind.name}, "
            f"which the gguf package cannot dequantise",
            entry.offset,
        ) from error


def _architecture(header: GgufHeader) -> GgufArchitecture:
    """The row of the model's architecture (GG0501 if it has none)."""
    found = ARCHITECTURES.get(header.architecture)
    if found is None:
        raise GraphgenError(
            "GG0501",
            f"the GGUF file holds architecture '{header.architecture}'; "
            f"supported: {', '.join(ARCHITECTURES)}",
            where=str(header.file.path),
            help="use the model's safetensors checkpoint instead",
        )
    return found


def _read_config(header: GgufHeader, architecture: GgufArchitecture) -> dict[str, object]:
    """The configuration under Hugging Face's names.

    Every key of the architecture is translated, known to change nothing, or an error: a key that
    is skipped could change what the model computes.

    Raises:
        GraphgenError: GG0502 for a setting that cannot be translated, GG0503 for an impossible
            value, GG0601 for a missing one.
    """
    if header.metadata.get("general.type") not in (None, "model"):
        raise header.unsupported("general.type", "only whole models can be read")
    own = header.own("")
    for full, value in header.metadata.items():
        key = full.removeprefix(own)
        if not full.startswith(own) or key in architecture.settings or key in _IGNORED:
            continue
        if key not in _REQUIRED_VALUES:
            raise header.unsupported(
                full, "this setting is not known, and it may change what the model computes"
            )
        if value != _REQUIRED_VALUES[key]:
            raise header.unsupported(full, "this kind of model is not supported")
    return {
        "architectures": [architecture.hf_class],
        "model_type": architecture.model_type,
        **architecture.config(header),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "bos_token_id": header.optional_int("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.optional_int("tokenizer.ggml.eos_token_id"),
    }
