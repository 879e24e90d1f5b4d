"""Arrays in safetensors files, for programs' inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphgen.eval import Array
from graphgen.whole_file import unreadable

ENDING = ".safetensors"


def read_safetensors(name: str, help: str) -> dict[str, Array]:
    """The arrays of a file (GG0705 when it is unreadable, or has a type that NumPy lacks)."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(Path(name).read_bytes())
    except KeyError as error:
        what = ValueError(f"it has an array of type {error}, which NumPy lacks")
        raise unreadable(name, what, help) from error
    except (OSError, SafetensorError) as error:
        raise unreadable(name, error, help) from error


def safetensors_bytes(arrays: Mapping[str, Array]) -> bytes:
    """The content of a file; bf16, which :func:`read_safetensors` does not know, as f32."""
    from safetensors.numpy import save

    return save(
        {
            name: np.ascontiguousarray(
                array if array.dtype.kind in "biuf" else array.astype(np.float32)
            )
            for name, array in arrays.items()
        }
    )
