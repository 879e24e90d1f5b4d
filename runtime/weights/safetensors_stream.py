"""Write a safetensors file of tensors that follow one by one: the header first, then each tensor.

The format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np

from graphgen.json_value import Json
from graphgen.runtime.checkpoint.interfaces import Array
from graphgen.runtime.weights.aligned_safetensors import DTYPE_NAMES


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
