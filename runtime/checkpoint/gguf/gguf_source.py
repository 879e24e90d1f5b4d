"""The origin of a GGUF checkpoint's tensors: rows of a stored tensor, or two stored tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quant_shape_to_byte_shape

from graphgen.runtime.checkpoint.gguf.gguf_architecture import (
    Config,
    FusedParts,
    GgufArchitecture,
    Restore,
    part_of_name,
)
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufTensor
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Array

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
