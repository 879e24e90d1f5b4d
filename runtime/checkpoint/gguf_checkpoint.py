"""Read a model from GGUF files under its Hugging Face names and in Hugging Face layout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quant_shape_to_byte_shape

from graphgen.runtime.checkpoint.gguf_architecture import (
    Config,
    FusedParts,
    GgufArchitecture,
    Restore,
    part_of_name,
)
from graphgen.runtime.checkpoint.gguf_architectures import architecture_of
from graphgen.runtime.checkpoint.gguf_header import (
    GgufHeader,
    GgufTensor,
    GgufValue,
    join_parts,
    read_parts,
)
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


class GgufSource(Protocol):
    """One tensor of a checkpoint, and how it is read from the file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that Hugging Face's tensor has."""
        ...

    @property
    def dtype(self) -> str:
        """The element type of what is read; f32 for quantized values."""
        ...

    @property
    def kind(self) -> str | None:
        """GGUF's name of the kind of a matrix, or of a stack of them, read row by row."""
        ...

    def read(self) -> Array:
        """The values, dequantized (GG0601)."""
        ...

    def blocks(self) -> Array:
        """The bytes u8 [..., out, bytes of a row] of a source that has a :attr:`kind`."""
        ...


@dataclass(frozen=True)
class StoredRows:
    """All of a stored tensor, or some of its first dimension.

    Attributes:
        entry: the stored tensor.
        restore: what undoes a change of its values.
        heads: that the rows belong to, where ``restore`` asks for them.
        start: the first row.
        rows: their number; 0 for all.
    """

    entry: GgufTensor
    restore: Restore | None = None
    heads: int = 1
    start: int = 0
    rows: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`GgufSource`."""
        shape = self.entry.shape
        if self.rows:
            return (self.rows, *shape[1:])
        turned = self.restore and self.restore.shape
        return turned(shape) if turned else shape

    @property
    def dtype(self) -> str:
        """See :class:`GgufSource`."""
        return _UNQUANTIZED.get(self.entry.kind, "f32")

    @property
    def kind(self) -> str | None:
        """See :class:`GgufSource`."""
        moved = self.restore is not None and self.restore.shape is not None
        return self.entry.kind.name if len(self.entry.shape) in (2, 3) and not moved else None

    def read(self) -> Array:
        """See :class:`GgufSource`."""
        return self._taken(decoded(self.entry))

    def blocks(self) -> Array:
        """See :class:`GgufSource`."""
        entry = self.entry
        what = f"the data of tensor '{entry.name}'"
        rows = entry.file.array(entry.offset, entry.nbytes, NUMPY_DTYPES["u8"], what)
        return self._taken(rows.reshape(quant_shape_to_byte_shape(entry.shape, entry.kind)))

    def _taken(self, values: Array) -> Array:
        """These rows, as Hugging Face has them; they must divide over the heads (GG0601)."""
        if self.rows:
            return values[self.start : self.start + self.rows]
        if self.restore is None:
            return values
        parts, heads = self.restore.parts, self.heads
        if len(values) % (parts * heads):
            what = "heads of even size" if parts == 2 else "heads with q, k and v each"
            raise self.entry.file.error(
                f"tensor '{self.entry.name}' has {len(values)} rows, which {heads} {what} "
                f"cannot share"
            )
        return self.restore.values(values, heads)


@dataclass(frozen=True)
class LatentHeads:
    """Rows of each head's keys, then of its values: the inverse of llama.cpp's two tensors.

    Attributes:
        keys: [heads, latent, size of a key].
        values: [heads, size of a value, latent].
    """

    keys: GgufTensor
    values: GgufTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`GgufSource`; GG0601 for tensors that do not belong together."""
        keys, values = self.keys.shape, self.values.shape
        if not (len(keys) == len(values) == 3 and keys[:2] == (values[0], values[2])):
            raise self.keys.file.error(
                f"tensors '{self.keys.name}' of shape {keys} and '{self.values.name}' of shape "
                f"{values} are not keys [heads, latent, size] and values [heads, size, latent]"
            )
        return keys[0] * (keys[2] + values[1]), keys[1]

    @property
    def dtype(self) -> str:
        """See :class:`GgufSource`."""
        kinds = {_UNQUANTIZED.get(each.kind, "f32") for each in (self.keys, self.values)}
        return kinds.pop() if len(kinds) == 1 else "f32"

    @property
    def kind(self) -> str | None:
        """None: rows of keys are stored as columns."""
        return None

    def read(self) -> Array:
        """See :class:`GgufSource`."""
        keys, values = [
            decoded(each).astype(NUMPY_DTYPES[self.dtype], copy=False)
            for each in (self.keys, self.values)
        ]
        return np.concatenate([keys.swapaxes(1, 2), values], axis=1).reshape(self.shape)

    def blocks(self) -> Array:
        """Not to be called: there is no :attr:`kind`."""
        raise AssertionError(self.keys.name)


# llama.cpp's names of what it makes of a latent projection of keys and values, and of that.
_KEYS, _VALUES, _BOTH = "attn_k_b", "attn_v_b", "attn_kv_b"


def tensor_sources(
    architecture: GgufArchitecture, entries: Mapping[str, GgufTensor], config: Config
) -> Iterator[tuple[str, GgufSource]]:
    """(Hugging Face name, source) of every tensor, in file order.

    Args:
        architecture: of the model.
        entries: the stored tensors by llama.cpp's name.
        config: under Hugging Face's names.

    Raises:
        GraphgenError: GG0601 for a fused layer with another number of rows than its parts have.
    """
    fused = architecture.fused(config)
    latent = _BOTH in architecture.layer
    for name, entry in entries.items():
        part = part_of_name(name)
        keys, values, both = [name.replace(f".{part}.", f".{x}.") for x in (_KEYS, _VALUES, _BOTH)]
        if part in fused:
            yield from _rows(architecture, entry, fused[part])
        elif latent and part in (_KEYS, _VALUES) and keys in entries and values in entries:
            if part == _KEYS:
                yield architecture.hf_name(both), LatentHeads(entry, entries[values])
        else:
            restore = architecture.restore_of(name)
            heads = config[restore.heads] if restore and restore.heads else 1
            assert isinstance(heads, int)
            yield architecture.hf_name(name), StoredRows(entry, restore, heads)


def _rows(
    architecture: GgufArchitecture, entry: GgufTensor, parts: FusedParts
) -> Iterator[tuple[str, GgufSource]]:
    """The parts of a layer that the file has in one (GG0601)."""
    total = sum(rows for _, rows in parts)
    if entry.shape[0] != total:
        raise entry.file.error(
            f"tensor '{entry.name}' has {entry.shape[0]} rows; "
            f"{', '.join(module for module, _ in parts)} have {total}"
        )
    start = 0
    for module, rows in parts:
        yield architecture.hf_name(entry.name, module), StoredRows(entry, None, 1, start, rows)
        start += rows


def decoded(entry: GgufTensor) -> Array:
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
        architecture = architecture_of(header)
        config = _read_config(header, architecture)
        self.config: Final[Mapping[str, object]] = config
        self._sources: Final[dict[str, GgufSource]] = {}
        entries = {n: e for n, e in header.tensors.items() if n not in architecture.in_config}
        for name, source in tensor_sources(architecture, entries, config):
            if name in self._sources:
                raise unreadable(path, f"two GGUF tensors are '{name}'")
            self._sources[name] = source

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its Hugging Face name, in file order; reads no tensor data."""
        return {
            name: TensorInfo(name, source.shape, source.dtype)
            for name, source in self._sources.items()
        }

    def read(self, name: str) -> Array:
        """The tensor ``name``, dequantised, its values as Hugging Face has them.

        Raises:
            GraphgenError: GG0602 if there is no such tensor, GG0601 if it cannot be decoded.
        """
        source = self._sources.get(name)
        if source is None:
            raise no_such_tensor(self.path, name)
        return source.read()

    def kinds(self) -> Mapping[str, str]:
        """GGUF's name of the kind of each matrix, or stack of them, that is read row by row."""
        return {name: kind for name, source in self._sources.items() if (kind := source.kind)}

    def blocks(self, name: str) -> Array:
        """The bytes u8 [..., out, bytes of a row] of a quantized tensor, rows as in Hugging Face's.

        Args:
            name: of :meth:`kinds`.
        """
        return self._sources[name].blocks()

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


def _read_config(header: GgufHeader, architecture: GgufArchitecture) -> Config:
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
