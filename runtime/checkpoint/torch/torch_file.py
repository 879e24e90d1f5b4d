"""Read the tensors of a PyTorch file (``torch.save``) from where they are, without PyTorch.

Such a file is a zip archive with nothing compressed: ``data.pkl`` says which tensors there are, and
each storage is an entry ``data/KEY`` whose bytes are used in place. The pickle is read by
:mod:`graphgen.runtime.checkpoint.torch.torch_pickle`, which runs nothing. What torch.save wrote
before
PyTorch 1.6 is no archive and is refused.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import CONVERT, NUMPY_DTYPES, Array, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import GET_IT_AGAIN, MappedFile, unreadable
from graphgen.runtime.checkpoint.torch.torch_pickle import STORAGE_TYPES, StoredTensor, read_pickle

_DTYPES: Final[Mapping[str, str]] = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "s64",
    "int32": "s32",
    "int16": "s16",
    "int8": "s8",
    "uint8": "u8",
    "bool": "pred",
}
# What torch.save put first before there was an archive: the pickle of a magic number.
_LEGACY: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_ZIP: Final = b"PK\x03\x04"
_LOCAL_HEADER: Final = 30
_MAX_DIMS: Final = 32


class TorchFile:
    """The tensors of one PyTorch file, memory-mapped.

    Tensors that share a storage, such as tied weights, share their bytes; one that is a strided
    part of its storage comes as a strided view.

    Args:
        path: the file, such as ``pytorch_model.bin``.

    Raises:
        GraphgenError: GG0601 for a damaged file or one of another kind, naming the tensor at fault;
            GG0604 for a pickle that wants to run something.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._file: Final = MappedFile(path, "PyTorch")
        self._spans: Final = _entries(self._file)
        self._root: Final = _root(self._file, self._spans)
        self._require_little_endian()
        start, size = self._spans[f"{self._root}data.pkl"]
        self._pickle: Final = self._file.take(start, size, "data.pkl")
        self.stored: Final = _tensors(path, read_pickle(self._pickle, path, start))
        for name, tensor in self.stored.items():
            self._check(name, tensor)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by name, in the order of the file; reads no tensor data."""
        return {
            name: TensorInfo(name, tensor.shape, _DTYPES[tensor.type])
            for name, tensor in self.stored.items()
        }

    def read(self, name: str) -> Array:
        """The tensor ``name``: a read-only view of the file.

        Raises:
            GraphgenError: GG0602 if there is no such tensor.
        """
        tensor = self.stored.get(name)
        if tensor is None:
            raise GraphgenError("GG0602", f"there is no tensor '{name}'", where=str(self.path))
        # NumPy takes a byte for a truth value as it is, and 2 is neither True nor False.
        truth = tensor.type == "bool"
        dtype = NUMPY_DTYPES["u8" if truth else _DTYPES[tensor.type]]
        if not prod(tensor.shape):
            return np.empty(tensor.shape, NUMPY_DTYPES[_DTYPES[tensor.type]])
        start, size = self._spans[f"{self._root}data/{tensor.storage.key}"]
        what = f"the data of tensor '{name}'"
        elements = self._file.array(start, size // dtype.itemsize, dtype, what)[tensor.offset :]
        strides = [step * dtype.itemsize for step in tensor.stride]
        view = np.lib.stride_tricks.as_strided(elements, tensor.shape, strides, writeable=False)
        return view != 0 if truth else view

    def digest(self, extra: bytes = b"") -> str:
        """SHA-256 of the pickle, the size, and the ends of each storage, as hexadecimal digits."""
        keys = dict.fromkeys(tensor.storage.key for tensor in self.stored.values())
        spans = (self._spans[f"{self._root}data/{key}"] for key in keys)
        return self._file.digest(0, spans, self._pickle + extra)

    def _require_little_endian(self) -> None:
        entry = self._spans.get(f"{self._root}byteorder")
        order = self._file.take(*entry, "byteorder") if entry else b"little"
        if order.strip() != b"little":
            raise unreadable(
                self.path,
                f"its byte order is {order[:16]!r}; only little-endian files can be read",
            )

    def _check(self, name: str, tensor: StoredTensor) -> None:
        """Refuse a tensor of an unknown type, or one that is not all in the file."""

        def bad(what: str) -> GraphgenError:
            return unreadable(self.path, f"tensor '{name}' {what}")

        kind, shape = _DTYPES.get(tensor.type), tensor.shape
        if kind is None:
            raise unreadable(
                self.path,
                f"tensor '{name}' has dtype {tensor.type}; supported: {', '.join(_DTYPES)}",
                help=CONVERT,
            )
        crowded = len(shape) > _MAX_DIMS or prod(max(size, 1) for size in shape) > 2**60
        if crowded or len(shape) != len(tensor.stride):
            raise bad(f"has shape {[*shape]} and stride {[*tensor.stride]}, which is no layout")
        entry = self._spans.get(f"{self._root}data/{tensor.storage.key}")
        if entry is None:
            raise bad(f"is in storage '{tensor.storage.key}', which is not in the file")
        each = NUMPY_DTYPES[kind].itemsize
        stated = tensor.storage.count * (each if tensor.storage.kind in STORAGE_TYPES else 1)
        if stated != entry[1]:
            key = tensor.storage.key
            raise bad(f"is in storage '{key}' of {stated} bytes, but the file has {entry[1]} of it")
        steps = zip(shape, tensor.stride, strict=True)
        last = tensor.offset + sum((size - 1) * step for size, step in steps)
        if prod(shape) and (last + 1) * each > entry[1]:
            raise bad(f"needs {(last + 1) * each} bytes of a storage that has {entry[1]}")


def looks_like_torch(head: bytes) -> bool:
    """Whether a file that begins like this may be PyTorch's, of any age."""
    return head.startswith((_ZIP, _LEGACY))


def _entries(file: MappedFile) -> dict[str, tuple[int, int]]:
    """First byte and size of what is in the archive, by name."""
    head = file.take(0, min(file.size, len(_LEGACY)), "the first bytes")
    if head == _LEGACY:
        raise unreadable(
            file.path,
            "the file has the form that torch.save wrote before PyTorch 1.6, which is not read",
            help=f"write it anew: torch.save(torch.load('{file.path.name}', map_location='cpu', "
            f"weights_only=True), '{file.path.name}')",
        )
    if not head.startswith(_ZIP):
        raise unreadable(file.path, f"not a PyTorch file: it starts with {head[:8]!r}")
    try:
        with zipfile.ZipFile(file.path) as archive:
            members = archive.infolist()
    # What damage can make of an archive's directory.
    except (zipfile.BadZipFile, ValueError, RuntimeError, OSError, struct.error) as error:
        what = f"the PyTorch file is cut off or damaged: {error}"
        raise unreadable(file.path, what, help=GET_IT_AGAIN) from error
    spans: dict[str, tuple[int, int]] = {}
    for member in members:
        if member.filename in spans:
            raise unreadable(file.path, f"'{member.filename}' is there twice")
        spans[member.filename] = _span(file, member)
    return spans


def _span(file: MappedFile, member: zipfile.ZipInfo) -> tuple[int, int]:
    what = f"'{member.filename}'"
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        raise unreadable(file.path, f"{what} is compressed, which torch.save never does")
    at = member.header_offset
    # Damage can put it before the file.
    header = file.take(at, _LOCAL_HEADER, f"the header of {what}") if at >= 0 else b""
    if not header.startswith(_ZIP):
        raise unreadable(file.path, f"the header of {what} is damaged", offset=at)
    start = at + _LOCAL_HEADER + sum(struct.unpack("<HH", header[26:30]))
    if start + member.file_size > file.size:
        raise unreadable(
            file.path,
            f"the PyTorch file is cut off: {what} needs {member.file_size} bytes here, "
            f"the file ends at byte {file.size}",
            offset=start,
            help=GET_IT_AGAIN,
        )
    return start, member.file_size


def _root(file: MappedFile, spans: Mapping[str, object]) -> str:
    """The folder in the archive that everything is in, with its slash."""
    found = [name.removesuffix("data.pkl") for name in spans if name.endswith("/data.pkl")]
    if len(found) != 1:
        raise unreadable(file.path, "not a PyTorch file: the archive has no data.pkl")
    if f"{found[0]}constants.pkl" in spans:
        raise unreadable(
            file.path,
            "the file is a TorchScript program, not weights",
            help="save the weights: torch.save(torch.jit.load(FILE).state_dict(), FILE)",
        )
    return found[0]


def _tensors(path: Path, value: object) -> dict[str, StoredTensor]:
    """The tensors by name; GG0601 where there is anything else."""
    if not isinstance(value, dict):
        raise unreadable(path, f"the file holds no tensors by name but is of type {_kind(value)}")
    found: dict[str, StoredTensor] = {}
    for name, item in cast("dict[object, object]", value).items():
        if not isinstance(name, str) or not isinstance(item, StoredTensor):
            raise unreadable(
                path,
                f"'{name}' is no tensor but of type {_kind(item)}",
                help="save the tensors alone: torch.save(model.state_dict(), 'pytorch_model.bin')",
            )
        found[name] = item
    return found


def _kind(value: object) -> str:
    return "tensor" if isinstance(value, StoredTensor) else type(value).__name__
