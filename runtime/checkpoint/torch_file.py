"""Read the tensors of a PyTorch file (``torch.save``) in place, without PyTorch.

The file is an uncompressed zip archive: ``data.pkl`` lists the tensors, and each storage is an
entry ``data/KEY`` whose bytes are used in place. :mod:`graphgen.runtime.checkpoint` runs
nothing of the pickle. Files of PyTorch before 1.6 are pickles followed by the bytes of storages.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Collection, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import CONVERT, NUMPY_DTYPES, Array, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import (
    GET_IT_AGAIN,
    ByteCursor,
    MappedFile,
    no_such_tensor,
)
from graphgen.runtime.checkpoint.torch_pickle import (
    STORAGE_TYPES,
    TORCH_DTYPES,
    StoredTensor,
    read_pickle,
)

# First bytes of such a file: the pickle of the magic number.
LEGACY: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_VERSION: Final = 1001

Span = tuple[int, int]


def read_legacy(file: MappedFile) -> tuple[dict[str, Span], Span, object]:
    """Read the pickles of a file, and find its storages; runs nothing and reads no tensor data.

    Returns:
        (first byte, size) of each storage by its key; those of the value's pickle; and the value.

    Raises:
        GraphgenError: GG0601 for a damaged file, GG0604 for a pickle that wants to run something.
    """
    with file.path.open("rb") as opened:
        _, version, machine = (read_pickle(opened, file.path, 0) for _ in range(3))
        start = opened.tell()
        value = read_pickle(opened, file.path, 0)
        size = opened.tell() - start
        keys = read_pickle(opened, file.path, 0)
        end = opened.tell()
    if version != _VERSION or not isinstance(keys, list):
        raise file.error(f"the file is of version {version} of the old form, not {_VERSION}")
    if isinstance(machine, Mapping) and machine.get("little_endian") is False:  # pyright: ignore[reportUnknownMemberType]
        raise file.error("its byte order is big-endian; only little-endian files can be read")
    kinds = {tensor.storage.key: tensor.storage.kind for tensor in _stored(value)}
    cursor, spans = ByteCursor(file, end), dict[str, Span]()
    for key in cast("list[object]", keys):
        name = str(key)
        element = TORCH_DTYPES.get(STORAGE_TYPES.get(kinds.get(name, ""), ""))
        if element is None:
            raise file.error(f"storage '{name}' is of type {kinds.get(name, 'unknown')}")
        count = cursor.unsigned(8, f"the size of storage '{name}'")
        bytes_ = count * NUMPY_DTYPES[element].itemsize
        file.require(cursor.pos, bytes_, f"storage '{name}'")
        spans[name] = (cursor.pos, bytes_)
        cursor.pos += bytes_
    return spans, (start, size), value


def _stored(value: object) -> Iterator[StoredTensor]:
    """The tensors of a value, those in containers too; a container that is shared is read once."""
    waiting, seen = [value], set[int]()
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, StoredTensor):
            yield item
        elif isinstance(item, Mapping):
            waiting += cast("Mapping[object, object]", item).values()
        elif isinstance(item, list | tuple):
            waiting += cast("list[object]", item)


_ZIP: Final = b"PK\x03\x04"
_LOCAL_HEADER: Final = 30
_MAX_DIMS: Final = 32


class TorchFile:
    """The tensors of one PyTorch file, memory-mapped.

    Tensors that share a storage, such as tied weights, share their bytes; one that is a strided
    part of its storage comes as a strided view.

    Args:
        path: the file, such as ``pytorch_model.bin``.
        also: keys of other values that may be among the tensors.

    Attributes:
        beside: the values of ``also`` that are there, by key.

    Raises:
        GraphgenError: GG0601 for a damaged file or one of another kind, naming the tensor at fault;
            GG0604 for a pickle that wants to run something.
    """

    def __init__(self, path: Path, also: Collection[str] = ()) -> None:
        self.path: Final = path
        self._file: Final = MappedFile(path, "PyTorch")
        if self._file.take(0, min(self._file.size, len(LEGACY)), "the first bytes") == LEGACY:
            root, (self._spans, pickled, value) = None, read_legacy(self._file)
        else:
            self._spans, root = _entries(self._file)
            _require_little_endian(self._file, self._spans.get(f"{root}byteorder"))
            pickled = self._spans[f"{root}data.pkl"]
            value = read_pickle(self._file.take(*pickled, "data.pkl"), path, pickled[0])
        self._data: Final = "" if root is None else f"{root}data/"
        self._pickle: Final = self._file.take(*pickled, "the pickle")
        held = _by_name(self._file, value)
        self.beside: Final = {key: held.pop(key) for key in also if key in held}
        self.stored: Final = _tensors(self._file, held)
        for name, tensor in self.stored.items():
            self._check(name, tensor)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by name, in the order of the file; reads no tensor data."""
        return {
            name: TensorInfo(name, tensor.shape, TORCH_DTYPES[tensor.type])
            for name, tensor in self.stored.items()
        }

    def read(self, name: str) -> Array:
        """The tensor ``name``: a read-only view of the file.

        Raises:
            GraphgenError: GG0602 if there is no such tensor.
        """
        tensor = self.stored.get(name)
        if tensor is None:
            raise no_such_tensor(self.path, name)
        # NumPy keeps the byte of a bool as it is: 2 would be neither True nor False.
        truth = tensor.type == "bool"
        dtype = NUMPY_DTYPES["u8" if truth else TORCH_DTYPES[tensor.type]]
        if not prod(tensor.shape):
            return np.empty(tensor.shape, NUMPY_DTYPES[TORCH_DTYPES[tensor.type]])
        start, size = self._spans[f"{self._data}{tensor.storage.key}"]
        what = f"the data of tensor '{name}'"
        elements = self._file.array(start, size // dtype.itemsize, dtype, what)[tensor.offset :]
        strides = [step * dtype.itemsize for step in tensor.stride]
        view = np.lib.stride_tricks.as_strided(elements, tensor.shape, strides, writeable=False)
        return view != 0 if truth else view

    def digest(self, extra: bytes = b"") -> str:
        """SHA-256 of the pickle, the size, and the ends of each storage, as hexadecimal digits."""
        keys = dict.fromkeys(tensor.storage.key for tensor in self.stored.values())
        spans = (self._spans[f"{self._data}{key}"] for key in keys)
        return self._file.digest(0, spans, self._pickle + extra)

    def _check(self, name: str, tensor: StoredTensor) -> None:
        """Refuse a tensor of an unknown type, or one that is not completely in the file."""

        def bad(what: str) -> GraphgenError:
            return self._file.error(f"tensor '{name}' {what}")

        kind, shape = TORCH_DTYPES.get(tensor.type), tensor.shape
        if kind is None:
            what = f"tensor '{name}' has dtype {tensor.type}; supported: {', '.join(TORCH_DTYPES)}"
            raise self._file.error(what, help=CONVERT)
        crowded = len(shape) > _MAX_DIMS or prod(max(size, 1) for size in shape) > 2**60
        if crowded or len(shape) != len(tensor.stride):
            raise bad(f"has shape {[*shape]} and stride {[*tensor.stride]}, which is not a layout")
        entry = self._spans.get(f"{self._data}{tensor.storage.key}")
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
    """True if a file with these first bytes may be PyTorch's, of any age."""
    return head.startswith((_ZIP, LEGACY))


def _require_little_endian(file: MappedFile, entry: tuple[int, int] | None) -> None:
    order = file.take(*entry, "byteorder") if entry else b"little"
    if order.strip() != b"little":
        what = f"its byte order is {order[:16]!r}; only little-endian files can be read"
        raise file.error(what)


def _entries(file: MappedFile) -> tuple[dict[str, tuple[int, int]], str]:
    """(first byte, size) of every archive entry by name, and the folder that holds them."""
    head = file.take(0, min(file.size, 8), "the first bytes")
    if not head.startswith(_ZIP):
        raise file.error(f"not a PyTorch file: it starts with {head!r}")
    try:
        with zipfile.ZipFile(file.path) as archive:
            members = archive.infolist()
    # The exceptions of zipfile for a damaged directory.
    except (zipfile.BadZipFile, ValueError, RuntimeError, OSError, struct.error) as error:
        what = f"the PyTorch file is cut off or damaged: {error}"
        raise file.error(what, help=GET_IT_AGAIN) from error
    spans: dict[str, tuple[int, int]] = {}
    for member in members:
        if member.filename in spans:
            raise file.error(f"'{member.filename}' is there twice")
        spans[member.filename] = _span(file, member)
    return spans, _root(file, spans)


def _span(file: MappedFile, member: zipfile.ZipInfo) -> tuple[int, int]:
    what = f"'{member.filename}'"
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        raise file.error(f"{what} is compressed, which torch.save never does")
    at = member.header_offset
    # A damaged offset can be negative.
    header = file.take(at, _LOCAL_HEADER, f"the header of {what}") if at >= 0 else b""
    if not header.startswith(_ZIP):
        raise file.error(f"the header of {what} is damaged", at)
    start = at + _LOCAL_HEADER + sum(struct.unpack("<HH", header[26:30]))
    file.require(start, member.file_size, what)
    return start, member.file_size


def _root(file: MappedFile, spans: Mapping[str, object]) -> str:
    """The folder of the archive that holds all entries, with its slash."""
    found = [name.removesuffix("data.pkl") for name in spans if name.endswith("/data.pkl")]
    if len(found) != 1:
        raise file.error("not a PyTorch file: the archive has no data.pkl")
    if f"{found[0]}constants.pkl" in spans:
        raise file.error(
            "the file is a TorchScript program, not weights",
            help="save the weights: torch.save(torch.jit.load(FILE).state_dict(), FILE)",
        )
    return found[0]


def _by_name(file: MappedFile, value: object) -> dict[object, object]:
    """The dictionary in a file (GG0601 for anything else)."""
    if not isinstance(value, dict):
        raise file.error(f"the file holds no tensors by name but is of type {_kind(value)}")
    return cast("dict[object, object]", value)


def _tensors(file: MappedFile, held: Mapping[object, object]) -> dict[str, StoredTensor]:
    """The tensors by name (GG0601 for anything else)."""
    found: dict[str, StoredTensor] = {}
    for name, item in held.items():
        if not isinstance(name, str) or not isinstance(item, StoredTensor):
            raise file.error(
                f"'{name}' is not a tensor but of type {_kind(item)}",
                help="save the tensors alone: torch.save(model.state_dict(), 'pytorch_model.bin')",
            )
        found[name] = item
    return found


def _kind(value: object) -> str:
    return "tensor" if isinstance(value, StoredTensor) else type(value).__name__
