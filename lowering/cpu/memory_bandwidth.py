"""Measure this machine's memory read bandwidth, the lower bound of a decode step's time."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

GIB = 1 << 30


def read_bandwidth(size: int = 2 * GIB, repeats: int = 3) -> float:
    """Bytes per second of reading ``size`` bytes once with all cores, best of ``repeats``.

    The buffer is larger than any cache, so this is the speed of memory. NumPy's sum runs without
    Python's lock, one thread a core.
    """
    cores = os.cpu_count() or 1
    parts = [np.ones(size // cores // 8, np.int64) for _ in range(cores)]
    read = sum(part.nbytes for part in parts)
    best = float("inf")
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(repeats):
            start = time.perf_counter()
            list(pool.map(np.add.reduce, parts))
            best = min(best, time.perf_counter() - start)
    return read / best
