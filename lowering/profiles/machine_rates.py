"""Rates of this machine, measured now: products of f32, and reading memory."""

from __future__ import annotations

import time

import numpy as np

from graphgen.lowering.cpu.memory_bandwidth import read_bandwidth
from graphgen.lowering.profiles.recording import DeviceRates

_SIDE, _REPEATS = 1024, 5
_READ = 256 << 20


def machine_rates() -> DeviceRates:
    """Operations and bytes a second of this machine: the best of some tries."""
    left = np.ones((_SIDE, _SIDE), np.float32)
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        np.matmul(left, left)
        best = min(best, time.perf_counter() - start)
    return DeviceRates(2 * _SIDE**3 / best, read_bandwidth(_READ), "this machine, measured now")
