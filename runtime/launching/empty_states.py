"""The caches of a session without tokens."""

from __future__ import annotations

import numpy as np

from graphgen.eval import numpy_dtype
from graphgen.ir import Module, Role
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import put


def empty_states(module: Module) -> dict[str, DeviceValue]:
    """Zeros for every state of a module, on the devices."""
    found: dict[str, DeviceValue] = {}
    for row in module.entries(Role.STATE):
        zeros = np.zeros(row.physical.dims, numpy_dtype(row.physical.dtype))
        found[row.name] = put([zeros] * module.ranks)
    return found
