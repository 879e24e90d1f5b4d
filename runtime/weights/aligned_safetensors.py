"""Write and read safetensors files whose tensors start at multiples of 64 bytes, for use in place.

The format does not allow gaps, so tensors called ``__pad.N`` fill them; any reader of safetensors
opens these files. The metadata of the header hold a checksum of each tensor and the bytes that fill
it up; the file's :func:`fingerprint` covers the header, so that together they cover every byte.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import ml_dtypes
import numpy as np

from graphgen.atomic_write import open_readable
from graphgen.errors import GraphgenError
from graphgen.json_value import OTHER_FORM, Json, parse_json
from graphgen.runtime.checkpoint.interfaces import Array
from graphgen.runtime.weights.huge_pages import ALIGNMENT
from graphgen.runtime.weights.weight_checks import DIGITS, ROW_BYTES, Checksum

_PAD = "__pad."
_METADATA = "__metadata__"
# Bytes that are read or written, and then checked, at once: they stay in a cache of the CPU.
PIECE = 1 << 20
DTYPE_NAMES = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int8": "I8",
    "int32": "I32",
    "uint8": "U8",
    "float64": "F64",
    "int64": "I64",
    "int16": "I16",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    # Not of safetensors: a byte each, as they are in memory without kernels that unpack them.
    "uint4": "U4_IN_BYTES",
    "int4": "I4_IN_BYTES",
}
_DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I8": np.dtype(np.int8),
    "I32": np.dtype(np.int32),
    "U8": np.dtype(np.uint8),
    "F64": np.dtype(np.float64),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "U4_IN_BYTES": np.dtype(ml_dtypes.uint4),
    "I4_IN_BYTES": np.dtype(ml_dtypes.int4),
}


def write_aligned(path: Path, shapes: Mapping[str, Array], arrays: Iterator[Array]) -> None:
    """Write tensors to ``path`` with a checksum of each, and flush it to the disk.

    Args:
        path: the file; the caller keeps it from readers until it is complete.
        shapes: name to an array of the tensor's shape and type; the contents are ignored.
        arrays: the tensors in the same order, each held only while it is written.
    """
    header: dict[str, object] = {_METADATA: dict.fromkeys(map(_key, shapes), "0" * DIGITS)}
    offset = 0
    for name, like in shapes.items():
        end = offset + like.nbytes
        kind = DTYPE_NAMES[str(like.dtype)]
        header[name] = {"dtype": kind, "shape": list(like.shape), "data_offsets": [offset, end]}
        gap = -end % ALIGNMENT
        if gap:
            pad = {"dtype": "U8", "shape": [gap], "data_offsets": [end, end + gap]}
            header[f"{_PAD}{len(header)}"] = pad
        offset = end + gap
    sums: dict[str, str] = {}
    with path.open("wb") as file:
        file.write(_header_bytes(header))
        for name, array in zip(shapes, arrays, strict=True):
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            sums[_key(name)] = _write_tensor(file, data)
        file.seek(0)
        file.write(_header_bytes({**header, _METADATA: sums}))
        file.flush()
        os.fsync(file.fileno())


def _key(name: str) -> str:
    """The key of a tensor's checksum in the metadata of the header."""
    return f"checksum {name}"


def _header_bytes(header: Mapping[str, object]) -> bytes:
    """The header with its length; as long with any checksums."""
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _write_tensor(file: BinaryIO, data: Array) -> str:
    """Write a tensor and what fills it up; the checksum of both."""
    made = Checksum()
    whole = len(data) // ROW_BYTES * ROW_BYTES
    for start in range(0, whole, PIECE):
        piece = data[start : min(start + PIECE, whole)]
        file.write(piece.data)
        made.update(piece)
    rest = np.zeros(-(-(len(data) - whole) // ALIGNMENT) * ALIGNMENT, np.uint8)
    rest[: len(data) - whole] = data[whole:]
    file.write(rest.data)
    made.update(rest)
    return made.hexdigest()


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a file.

    Attributes:
        name: of the tensor.
        dtype: of its elements.
        shape: its sizes.
        start: the first byte in the file, a multiple of 64.
        nbytes: the bytes of its elements.
        checksum: of these, filled up with zeros to a multiple of 64 bytes.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    start: int
    nbytes: int
    checksum: str

    @property
    def end(self) -> int:
        """The end of the padding in the file."""
        return self.start + -(-self.nbytes // ALIGNMENT) * ALIGNMENT


def read_header(path: Path, root: Path | None = None) -> list[Tensor]:
    """The tensors of a file that :func:`write_aligned` wrote, in order; they cover all of it.

    Args:
        path: the file.
        root: the folder that it is in, out of which no link is followed; ``None`` for its own.

    Raises:
        GraphgenError: GG0703 if the header is damaged, or the file of another size.
    """
    try:
        with open_readable(root or path.parent, path) as file:
            size = os.fstat(file.fileno()).st_size
            first = int.from_bytes(file.read(8), "little") + 8
            text = file.read(min(first - 8, size))
        header = cast(dict[str, dict[str, object]], parse_json(text))
        sums = cast(Mapping[str, str], header.pop(_METADATA))
        rows = {name: row for name, row in header.items() if not name.startswith(_PAD)}
        tensors = [_tensor(name, row, first, sums[_key(name)]) for name, row in rows.items()]
    except (OSError, *OTHER_FORM) as error:
        raise damaged(path, str(error)) from error
    ends = [first, *(tensor.end for tensor in tensors)]
    if [tensor.start for tensor in tensors] != ends[:-1] or size != ends[-1]:
        raise damaged(path, f"its tensors do not fill its {size} bytes")
    return tensors


def _tensor(name: str, row: Mapping[str, object], first: int, checksum: str) -> Tensor:
    start, end = cast(list[int], row["data_offsets"])
    shape = tuple(cast(list[int], row["shape"]))
    return Tensor(name, _DTYPES[str(row["dtype"])], shape, first + start, end - start, checksum)


def damaged(path: Path, reason: str) -> GraphgenError:
    """The error (GG0703) of a damaged weight file."""
    return GraphgenError(
        "GG0703", f"{path} is damaged: {reason}", help="delete its folder and make it again"
    )


def fingerprint(path: Path, root: Path | None = None) -> str:
    """SHA-256 of the size and the header, which holds the checksums of all tensors (OSError).

    Args:
        path, root: as for :func:`read_header`.
    """
    with open_readable(root or path.parent, path) as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        digest = hashlib.sha256(str(size).encode() + b" " + first)
        # No more than the file has: a damaged length may be anything.
        digest.update(file.read(min(int.from_bytes(first, "little"), size)))
    return digest.hexdigest()


def stream_header(rows: Iterable[tuple[str, np.dtype[np.generic], tuple[int, ...]]]) -> bytes:
    """Length and JSON of a safetensors file, filled up to a multiple of 8 bytes.

    Args:
        rows: name, element type and shape of each tensor, in the order in which they follow.
    """
    fields: dict[str, Json] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dtype, shape in rows:
        end = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        fields[name] = {
            "dtype": DTYPE_NAMES[str(dtype)],
            "shape": list(shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(fields).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def append_tensor(file: BinaryIO, array: Array) -> None:
    """Write the elements of the next tensor, or of the next part of it."""
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
