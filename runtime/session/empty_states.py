"""Tensors of a session that hold nothing yet: caches without tokens, slots without adapters."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graphgen.eval import numpy_dtype
from graphgen.ir import Entry
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import put


def zeros_for(rows: Iterable[Entry], ranks: int) -> dict[str, DeviceValue]:
    """Zeros for rows of an interface, by name, on the devices of all ranks."""
    found: dict[str, DeviceValue] = {}
    for row in rows:
        zeros = np.zeros(row.physical.dims, numpy_dtype(row.physical.dtype))
        found[row.name] = put([zeros] * ranks)
    return found
