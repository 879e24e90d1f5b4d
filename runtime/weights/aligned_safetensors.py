"""Write and read safetensors files whose tensors start at multiples of 64 bytes, for use in place.

The format does not allow gaps, so tensors called ``__pad.N`` fill them; any reader of safetensors
opens these files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import ml_dtypes
import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.runtime.weights.huge_pages import ALIGNMENT, huge_pages

_PAD = "__pad."
_SAMPLE = 1 << 16
_CHUNK = 1 << 26
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
}


def write_aligned(path: Path, shapes: Mapping[str, Array], arrays: Iterator[Array]) -> None:
    """Write tensors to ``path`` and flush it to the disk.

    Args:
        path: the file; the caller keeps it from readers until it is complete.
        shapes: name to an array of the tensor's shape and type; the contents are ignored.
        arrays: the tensors in the same order, each held only while it is written.
    """
    header: dict[str, object] = {}
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
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays:
            data = np.ascontiguousarray(array)
            file.write(data.reshape(-1).view(np.uint8).data)
            file.write(b"\0" * (-data.nbytes % ALIGNMENT))
        file.flush()
        os.fsync(file.fileno())


def read_aligned(path: Path) -> dict[str, Array]:
    """The tensors by name, aligned, in huge pages (GG0703 if the file is damaged).

    The file is read, not mapped: a mapped file has small pages, see :func:`huge_pages`.
    """
    try:
        data = _read_into_huge_pages(path)
        size = int.from_bytes(bytes(data[:8]), "little")
        header = cast(dict[str, dict[str, object]], json.loads(bytes(data[8 : 8 + size])))
        return {
            name: _view(data[8 + size :], row)
            for name, row in header.items()
            if not name.startswith(_PAD)
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GraphgenError(
            "GG0703", f"{path} is damaged: {error}", help="delete the artifact and make it again"
        ) from error


def _read_into_huge_pages(path: Path) -> Array:
    size = path.stat().st_size
    data = huge_pages(size)
    with path.open("rb", buffering=0) as file:
        done = 0
        while done < size and (count := file.readinto(data[done : done + _CHUNK].data)):
            done += count
    return data


def _view(data: Array, row: Mapping[str, object]) -> Array:
    start, end = cast(list[int], row["data_offsets"])
    dtype = _DTYPES[cast(str, row["dtype"])]
    return data[start:end].view(dtype).reshape(cast(list[int], row["shape"]))


def fingerprint(path: Path) -> str:
    """SHA-256 over the size, both ends and a sample every 16 MiB: milliseconds for gigabytes."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as file:
        for start in [*range(0, size, 1 << 24), max(size - _SAMPLE, 0)]:
            file.seek(start)
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
