"""Parse the header of a GGUF file without trusting the sizes it states.

The ``gguf`` package's reader walks arrays as long as a damaged header claims they are; this one
compares every count with the bytes left in the file before it allocates. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Final, TypeAlias, cast

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from graphgen.errors import GraphgenError
from graphgen.limits import STRINGS
from graphgen.read_file import is_file
from graphgen.runtime.checkpoint.interfaces import Array
from graphgen.runtime.checkpoint.mapped_file import ByteCursor, MappedFile

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
# The largest vocabularies have 2^18 tokens, and as many merges.
# Least bytes of one metadata entry (empty key, one-byte value) and of one tensor entry.
_LEAST_ENTRY: Final = 8 + 4 + 1
_LEAST_TENSOR: Final = 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True)
class GgufTensor:
    """One tensor entry of a GGUF header.

    Attributes:
        name: the GGUF name, such as ``blk.0.attn_q.weight``.
        shape: the sizes, outermost first (GGUF stores them innermost first).
        kind: the storage format of the data.
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
    """Everything of a GGUF file but the tensor data, with typed access to the metadata.

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

    @property
    def architecture(self) -> str:
        """The value of ``general.architecture`` (GG0601 if it is missing)."""
        return self.string("general.architecture")

    def own(self, key: str) -> str:
        """The full key of an architecture setting, such as ``llama.context_length``."""
        return f"{self.architecture}.{key}"

    def string(self, key: str) -> str:
        """The string under ``key`` (GG0601 if it is missing or of another type)."""
        value = self._require(key)
        if not isinstance(value, str):
            raise self._wrong_type(key, value, "a string")
        return value

    def strings(self, key: str) -> list[str]:
        """The list of strings under ``key`` (GG0601 if it is missing or of another type)."""
        value = self._require(key)
        if not isinstance(value, list):
            raise self._wrong_type(key, value, "an array of strings")
        return value

    def integer(self, key: str) -> int:
        """The integer under ``key`` (GG0601 if it is missing or of another type)."""
        value = self._require(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong_type(key, value, "an integer")
        return value

    def positive_int(self, key: str) -> int:
        """The integer under ``key`` (as :meth:`integer`; GG0503 below 1)."""
        value = self.integer(key)
        if value < 1:
            raise self.bad_value(key, f"is {value}; it must be at least 1")
        return value

    def optional_int(self, key: str) -> int | None:
        """The integer under ``key``, None if the key is missing (GG0601 for another type)."""
        return self.integer(key) if key in self.metadata else None

    def optional_bool(self, key: str) -> bool | None:
        """The boolean under ``key``, None if the key is missing (GG0601 for another type)."""
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong_type(key, value, "a boolean")
        return value

    def positive_float(self, key: str, default: float | None = None) -> float:
        """The number under ``key``, or ``default`` if the key is missing and there is a default.

        A stored f32 becomes the shortest decimal that rounds to it: 1e-05 as in the original
        ``config.json``, not 9.999999747378752e-06.

        Raises:
            GraphgenError: GG0601 if it is missing or of another type, GG0503 if not above 0.
        """
        if default is not None and key not in self.metadata:
            return default
        value = self._require(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong_type(key, value, "a number")
        if not (math.isfinite(value) and value > 0):
            raise self.bad_value(key, f"is {value}; it must be a finite number above 0")
        narrow = np.float32(value) if abs(value) < np.finfo(np.float32).max else None
        return float(str(narrow)) if narrow is not None and float(narrow) == value else float(value)

    def bad_value(self, key: str, what: str) -> GraphgenError:
        """GG0503: the value of ``key`` is impossible."""
        where = str(self.file.path)
        return GraphgenError("GG0503", f"GGUF metadata '{key}' {what}", where=where)

    def unsupported(self, key: str, why: str) -> GraphgenError:
        """GG0502: the value of ``key`` cannot be translated."""
        what = f"GGUF metadata '{key}' is {_show(self.metadata[key])}: {why}"
        return GraphgenError("GG0502", what, where=str(self.file.path))

    def _require(self, key: str) -> GgufValue:
        if key not in self.metadata:
            raise self.file.error(f"GGUF metadata '{key}' is missing")
        return self.metadata[key]

    def _wrong_type(self, key: str, value: GgufValue, wanted: str) -> GraphgenError:
        return self.file.error(f"GGUF metadata '{key}' is {_show(value)}, not {wanted}")


def _show(value: GgufValue) -> str:
    if isinstance(value, bool | int | float | str):
        return repr(value)
    return f"an array of {len(value)} values"


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of the GGUF file ``path``.

    Raises:
        GraphgenError: GG0601 with the offset, if the file is not a readable GGUF file.
    """
    return _GgufCursor(MappedFile(path, "GGUF")).header()


class _GgufCursor(ByteCursor):
    """Reads the parts of a header in file order."""

    __slots__ = ()

    def header(self) -> GgufHeader:
        tensor_count, entry_count = self._preamble()
        metadata: dict[str, GgufValue] = {}
        for index in range(entry_count):
            at = self.pos
            key = self._string(f"the key of metadata entry {index}")
            if key in metadata:
                raise self.file.error(f"metadata key '{key}' is there twice", at)
            metadata[key] = self._value(key)
        entries = [self._tensor(index) for index in range(tensor_count)]
        alignment = _alignment(self.file, metadata)
        data_offset = -(-self.pos // alignment) * alignment
        tensors = _place_tensors(self.file, entries, data_offset, alignment)
        return GgufHeader(self.file, metadata, tensors, data_offset)

    def _preamble(self) -> tuple[int, int]:
        """(number of tensors, number of metadata entries)."""
        magic = self.bytes(4, "the magic number")
        if magic != b"GGUF":
            what = f"not a GGUF file: it starts with {magic!r}, not b'GGUF'"
            raise self.file.error(what, 0)
        version = self.unsigned(4, "the version")
        if version not in _VERSIONS:
            what = f"GGUF version {version} cannot be read; supported: 2, 3"
            if int.from_bytes(version.to_bytes(4, "little")) in _VERSIONS:
                what = "the GGUF file is big-endian; only little-endian files can be read"
            raise self.file.error(what, 4)
        tensor_count = self._count(_LEAST_TENSOR, "the number of tensors")
        return tensor_count, self._count(_LEAST_ENTRY, "the number of metadata entries")

    def _string(self, what: str) -> str:
        at = self.pos
        length = self.unsigned(8, what)
        if length > _MAX_STRING_BYTES:
            raise self.file.error(f"{what} is {length} bytes long; at most {_MAX_STRING_BYTES}", at)
        try:
            return self.bytes(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.file.error(f"{what} is not valid UTF-8", at) from None

    def _count(self, least_bytes: int, what: str) -> int:
        """A stored count of items, each at least ``least_bytes`` long."""
        at = self.pos
        count = self.unsigned(8, what)
        room = (self.file.size - self.pos) // least_bytes
        if count > room:
            raise self.file.error(
                f"{what} is {count}, but the rest of the file has room for {room} at most", at
            )
        return count

    def _value_type(self, what: str) -> GGUFValueType:
        at = self.pos
        code = self.unsigned(4, what)
        try:
            return GGUFValueType(code)
        except ValueError:
            raise self.file.error(f"{what} is {code}, which is not a GGUF type", at) from None

    def _value(self, key: str) -> GgufValue:
        kind = self._value_type(f"the type of metadata '{key}'")
        what = f"the value of metadata '{key}'"
        at = self.pos
        if kind is GGUFValueType.STRING:
            return self._string(what)
        if kind is GGUFValueType.ARRAY:
            return self._array(key)
        if kind is GGUFValueType.BOOL:
            byte = self.bytes(1, what)[0]
            if byte > 1:
                raise self.file.error(f"{what} is a boolean of {byte}, neither 0 nor 1", at)
            return byte == 1
        code = _SCALARS[kind]
        data = self.bytes(struct.calcsize(code), what)
        return cast("int | float", struct.unpack(code, data)[0])

    def _array(self, key: str) -> list[str] | Array:
        at = self.pos
        kind = self._value_type(f"the element type of metadata '{key}'")
        what = f"the number of elements of metadata '{key}'"
        if kind is GGUFValueType.STRING:
            count = self._count(8, what)
            if count > STRINGS.most:
                raise self.file.error(f"{what} is {count}; {STRINGS}", at)
            return [self._string(f"an element of metadata '{key}'") for _ in range(count)]
        if kind is GGUFValueType.ARRAY:
            what = f"metadata '{key}' is an array of arrays, which is not supported"
            raise self.file.error(what, at)
        dtype = np.dtype(_SCALARS.get(kind, "u1"))
        count = self._count(dtype.itemsize, what)
        # A view: an array as large as the file must cost nothing.
        values = self.file.array(self.pos, count, dtype, f"metadata '{key}'")
        self.pos += values.nbytes
        return values

    def _tensor(self, index: int) -> GgufTensor:
        """One tensor entry, its offset still relative to the start of the data."""
        at = self.pos
        name = self._string(f"the name of tensor {index}")
        rank = self.unsigned(4, f"the rank of tensor '{name}'")
        if not 1 <= rank <= _MAX_DIMS:
            what = f"tensor '{name}' has rank {rank}; GGUF allows 1 to {_MAX_DIMS}"
            raise self.file.error(what, at)
        sizes = [self.unsigned(8, f"the shape of tensor '{name}'") for _ in range(rank)]
        code = self.unsigned(4, f"the type of tensor '{name}'")
        try:
            kind = GGMLQuantizationType(code)
        except ValueError:
            raise self.file.error(f"tensor '{name}' has unknown type {code}", at) from None
        block, block_bytes = GGML_QUANT_SIZES[kind]
        shape = tuple(reversed(sizes))
        if shape[-1] % block:
            raise self.file.error(
                f"tensor '{name}' has rows of {shape[-1]}, no multiple of {kind.name}'s "
                f"block {block}",
                at,
            )
        offset = self.unsigned(8, f"the offset of tensor '{name}'")
        return GgufTensor(name, shape, kind, offset, prod(shape) // block * block_bytes, self.file)


def _alignment(file: MappedFile, metadata: Mapping[str, GgufValue]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or value is True or value < 1 or value & (value - 1):
        raise file.error(f"general.alignment is {value!r}; it must be a power of two")
    return int(value)


def _place_tensors(
    file: MappedFile, entries: list[GgufTensor], data_offset: int, alignment: int
) -> dict[str, GgufTensor]:
    """The entries by name with offsets from the start of the file, checked to be inside it."""
    tensors: dict[str, GgufTensor] = {}
    for entry in entries:
        name, offset = entry.name, data_offset + entry.offset
        if name in tensors:
            raise file.error(f"tensor '{name}' is there twice")
        if entry.offset % alignment:
            what = f"the data of tensor '{name}' is not aligned to {alignment} bytes"
            raise file.error(what, offset)
        file.require(offset, entry.nbytes, f"the data of tensor '{name}'")
        # A size of zero hides an impossible one beside it: NumPy refuses such a shape.
        if prod(max(size, 1) for size in entry.shape) > 2**60:
            raise file.error(f"tensor '{name}' has an impossible shape {entry.shape}")
        tensors[name] = replace(entry, offset=offset)
    last: GgufTensor | None = None
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if last is not None and last.offset + last.nbytes > tensor.offset:
            what = f"the data of tensors '{last.name}' and '{tensor.name}' overlap"
            raise file.error(what, tensor.offset)
        last = tensor
    return tensors


# A model in several files, as llama.cpp splits it: NAME-00001-of-00003.gguf, ...
_PART: Final = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_COUNT, _NUMBER, _TENSORS = "split.count", "split.no", "split.tensors.count"


def part_files(path: Path) -> list[Path]:
    """All files of a split model by the name of any of them; else the file alone."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    names = [f"{match['name']}-{n:05d}-of-{count:05d}.gguf" for n in range(1, count + 1)]
    return [path.with_name(name) for name in names] if path.name in names else [path]


def read_parts(path: Path) -> list[GgufHeader]:
    """The headers of all files of a model, in order; one for a model that is not split.

    Raises:
        GraphgenError: GG0601 for a damaged file, for parts that are missing or do not belong
            together, and for a part without the name of a part.
    """
    header = read_header(path)
    count = _split_number(header, _COUNT, 1)
    if count <= 1:
        return [header]
    files = part_files(path)
    if len(files) != count:
        raise header.file.error(
            f"the file is part {_split_number(header, _NUMBER, 0) + 1} of {count}, but is not "
            f"called NAME-00001-of-{count:05d}.gguf",
            help="give the parts the names they had, or merge them",
        )
    missing = [file.name for file in files if not is_file(file)]
    if missing:
        lines = [f"missing: {name}" for name in missing[:20]]
        if len(missing) > 20:
            lines.append(f"missing: and {len(missing) - 20} more files")
        raise GraphgenError(
            "GG0601",
            f"{len(missing)} of the {count} files of the model are not there",
            where=str(path),
            note="\n".join(lines),
            help="copy or download what is missing into the folder",
        )
    parts = [header if file == path else read_header(file) for file in files]
    for index, part in enumerate(parts):
        place, stated = _split_number(part, _NUMBER, 0), _split_number(part, _COUNT, 1)
        if (place, stated) != (index, len(parts)):
            raise part.file.error(
                f"by its name the file is part {index + 1} of {len(parts)}, by what it says of "
                f"itself part {place + 1} of {stated}",
                help="the names were mixed up: get the files again",
            )
    return parts


def join_parts(parts: Sequence[GgufHeader]) -> GgufHeader:
    """One header for all parts: the first part's metadata and every tensor (GG0601)."""
    first = parts[0]
    if len(parts) == 1:
        return first
    tensors: dict[str, GgufTensor] = {}
    for part in parts:
        for name in part.tensors.keys() & tensors.keys():
            raise part.file.error(f"tensor '{name}' is in another part too")
        tensors |= part.tensors
    stated = _split_number(first, _TENSORS, len(tensors))
    if stated != len(tensors):
        what = f"the parts hold {len(tensors)} tensors, the first declares {stated}"
        raise first.file.error(what)
    return replace(first, tensors=tensors)


def _split_number(header: GgufHeader, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise header.file.error(f"GGUF metadata '{key}' is not an integer")
    return value
