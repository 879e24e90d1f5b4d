"""Read the header of a GGUF file, trusting nothing it says about its own sizes.

The ``gguf`` package's own reader walks arrays as long as a damaged header claims they are; here
every count is compared with the bytes that are left before anything is made of it. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Final, TypeAlias, cast

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import Array
from graphgen.runtime.checkpoint.mapped_file import GET_IT_AGAIN, MappedFile, unreadable

GgufValue: TypeAlias = bool | int | float | str | list[str] | Array
"""One metadata value: a scalar, a list of strings, or a view of a numeric array."""

_SCALARS: Final[Mapping[GGUFValueType, str]] = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}
_VERSIONS: Final = (2, 3)
_MAX_DIMS: Final = 4
_DEFAULT_ALIGNMENT: Final = 32
# Far above any real tokenizer or chat template: a damaged length must not fill the memory.
_MAX_STRING_BYTES: Final = 1 << 26
_MAX_STRINGS: Final = 1 << 24
# Least bytes of one metadata entry (empty key, one-byte value) and of one tensor entry.
_LEAST_ENTRY: Final = 8 + 4 + 1
_LEAST_TENSOR: Final = 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True)
class GgufTensor:
    """One tensor entry of a GGUF header.

    Attributes:
        name: the GGUF name, such as ``blk.0.attn_q.weight``.
        shape: the sizes, outermost first (GGUF stores them innermost first).
        kind: how the data is stored.
        offset: the first byte of the data in the file.
        nbytes: the number of bytes of data.
        file: the file the data is in.
    """

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    nbytes: int
    file: MappedFile


@dataclass(frozen=True)
class GgufHeader:
    """Everything of a GGUF file but the tensor data.

    Attributes:
        file: the mapped file.
        metadata: the key-value pairs, in file order.
        tensors: the tensor entries by GGUF name, in file order.
        data_offset: the first byte after the header.
    """

    file: MappedFile
    metadata: Mapping[str, GgufValue]
    tensors: Mapping[str, GgufTensor]
    data_offset: int


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of the GGUF file ``path``.

    Raises:
        GraphgenError: GG0601 with the offset, if the file is not a readable GGUF file.
    """
    reader = _GgufCursor(MappedFile(path, "GGUF"))
    tensor_count, entry_count = _read_preamble(reader)
    metadata: dict[str, GgufValue] = {}
    for index in range(entry_count):
        at = reader.pos
        key = reader.string(f"the key of metadata entry {index}")
        if key in metadata:
            raise reader.error(f"metadata key '{key}' is there twice", at)
        metadata[key] = _read_value(reader, key)
    entries = [_read_tensor(reader, index) for index in range(tensor_count)]
    alignment = _alignment(reader, metadata)
    data_offset = -(-reader.pos // alignment) * alignment
    tensors = _place(reader, entries, data_offset, alignment)
    return GgufHeader(reader.file, metadata, tensors, data_offset)


class _GgufCursor:
    """A position in the file that only moves over bytes that are there."""

    __slots__ = ("file", "pos")

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.pos = 0

    def error(self, what: str, at: int, help: str = "") -> GraphgenError:
        return unreadable(self.file.path, what, offset=at, help=help)

    def bytes(self, count: int, what: str) -> bytes:
        data = self.file.take(self.pos, count, what)
        self.pos += count
        return data

    def scalar(self, code: str, what: str) -> int | float:
        return cast("int | float", struct.unpack(code, self.bytes(struct.calcsize(code), what))[0])

    def u32(self, what: str) -> int:
        return int.from_bytes(self.bytes(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.bytes(8, what), "little")

    def string(self, what: str) -> str:
        at = self.pos
        length = self.u64(what)
        if length > _MAX_STRING_BYTES:
            raise self.error(f"{what} is {length} bytes long; at most {_MAX_STRING_BYTES}", at)
        data = self.bytes(length, what)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not valid UTF-8", at) from None

    def count(self, least_bytes: int, what: str) -> int:
        """A stored count of items, each at least ``least_bytes`` long."""
        at = self.pos
        count = self.u64(what)
        room = (self.file.size - self.pos) // least_bytes
        if count > room:
            raise self.error(
                f"{what} is {count}, but the rest of the file has room for {room} at most", at
            )
        return count


def _read_preamble(reader: _GgufCursor) -> tuple[int, int]:
    magic = reader.bytes(4, "the magic number")
    if magic != b"GGUF":
        raise reader.error(f"not a GGUF file: it starts with {magic!r}, not b'GGUF'", 0)
    version = reader.u32("the version")
    if version not in _VERSIONS and int.from_bytes(version.to_bytes(4, "little")) in _VERSIONS:
        raise reader.error("the GGUF file is big-endian; only little-endian files can be read", 4)
    if version not in _VERSIONS:
        raise reader.error(f"GGUF version {version} cannot be read; supported: 2, 3", 4)
    tensor_count = reader.count(_LEAST_TENSOR, "the number of tensors")
    return tensor_count, reader.count(_LEAST_ENTRY, "the number of metadata entries")


def _value_type(reader: _GgufCursor, what: str) -> GGUFValueType:
    at = reader.pos
    code = reader.u32(what)
    try:
        return GGUFValueType(code)
    except ValueError:
        raise reader.error(f"{what} is {code}, which is no GGUF type", at) from None


def _read_value(reader: _GgufCursor, key: str) -> GgufValue:
    kind = _value_type(reader, f"the type of metadata '{key}'")
    what = f"the value of metadata '{key}'"
    at = reader.pos
    if kind is GGUFValueType.STRING:
        return reader.string(what)
    if kind is GGUFValueType.ARRAY:
        return _read_array(reader, key)
    if kind is GGUFValueType.BOOL:
        byte = reader.bytes(1, what)[0]
        if byte > 1:
            raise reader.error(f"{what} is a boolean of {byte}, neither 0 nor 1", at)
        return byte == 1
    return reader.scalar(_SCALARS[kind], what)


def _read_array(reader: _GgufCursor, key: str) -> list[str] | Array:
    at = reader.pos
    kind = _value_type(reader, f"the element type of metadata '{key}'")
    what = f"the number of elements of metadata '{key}'"
    if kind is GGUFValueType.STRING:
        count = reader.count(8, what)
        if count > _MAX_STRINGS:
            raise reader.error(f"{what} is {count}; at most {_MAX_STRINGS}", at)
        element = f"an element of metadata '{key}'"
        return [reader.string(element) for _ in range(count)]
    if kind is GGUFValueType.ARRAY:
        raise reader.error(f"metadata '{key}' is an array of arrays, which is not supported", at)
    dtype = np.dtype(_SCALARS.get(kind, "u1"))
    count = reader.count(dtype.itemsize, what)
    # A view: an array as large as the file must cost nothing.
    values = reader.file.array(reader.pos, count, dtype, f"metadata '{key}'")
    reader.pos += values.nbytes
    return values


def _read_tensor(reader: _GgufCursor, index: int) -> GgufTensor:
    """One tensor entry, its offset still relative to the start of the data."""
    at = reader.pos
    name = reader.string(f"the name of tensor {index}")
    rank = reader.u32(f"the rank of tensor '{name}'")
    if not 1 <= rank <= _MAX_DIMS:
        raise reader.error(f"tensor '{name}' has rank {rank}; GGUF allows 1 to {_MAX_DIMS}", at)
    sizes = [reader.u64(f"the shape of tensor '{name}'") for _ in range(rank)]
    code = reader.u32(f"the type of tensor '{name}'")
    try:
        kind = GGMLQuantizationType(code)
    except ValueError:
        raise reader.error(f"tensor '{name}' has unknown type {code}", at) from None
    block, block_bytes = GGML_QUANT_SIZES[kind]
    shape = tuple(reversed(sizes))
    if shape[-1] % block:
        raise reader.error(
            f"tensor '{name}' has rows of {shape[-1]}, no multiple of {kind.name}'s block {block}",
            at,
        )
    offset = reader.u64(f"the offset of tensor '{name}'")
    return GgufTensor(name, shape, kind, offset, prod(shape) // block * block_bytes, reader.file)


def _alignment(reader: _GgufCursor, metadata: Mapping[str, GgufValue]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or value is True or value < 1 or value & (value - 1):
        raise unreadable(
            reader.file.path, f"general.alignment is {value!r}; it must be a power of two"
        )
    return int(value)


def _place(
    reader: _GgufCursor, entries: list[GgufTensor], data_offset: int, alignment: int
) -> dict[str, GgufTensor]:
    """The entries by name with offsets from the start of the file, checked to lie inside it."""
    tensors: dict[str, GgufTensor] = {}
    for entry in entries:
        offset = data_offset + entry.offset
        if entry.name in tensors:
            raise unreadable(reader.file.path, f"tensor '{entry.name}' is there twice")
        if entry.offset % alignment:
            raise reader.error(
                f"the data of tensor '{entry.name}' is not aligned to {alignment} bytes", offset
            )
        if offset + entry.nbytes > reader.file.size:
            raise reader.error(
                f"the GGUF file is cut off: the data of tensor '{entry.name}' needs "
                f"{entry.nbytes} bytes here, the file ends at byte {reader.file.size}",
                offset,
                GET_IT_AGAIN,
            )
        _require_addressable(reader, entry)
        tensors[entry.name] = replace(entry, offset=offset)
    _require_disjoint(reader, tensors)
    return tensors


def _require_addressable(reader: _GgufCursor, entry: GgufTensor) -> None:
    # A size of zero hides an impossible one beside it: NumPy refuses such a shape.
    if prod(max(size, 1) for size in entry.shape) > 2**60:
        raise unreadable(
            reader.file.path, f"tensor '{entry.name}' has an impossible shape {entry.shape}"
        )


def _require_disjoint(reader: _GgufCursor, tensors: Mapping[str, GgufTensor]) -> None:
    last: GgufTensor | None = None
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if last is not None and last.offset + last.nbytes > tensor.offset:
            raise reader.error(
                f"the data of tensors '{last.name}' and '{tensor.name}' overlap", tensor.offset
            )
        last = tensor
