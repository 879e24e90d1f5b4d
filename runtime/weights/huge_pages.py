"""Allocate weight memory: 64-byte aligned for zero-copy devices, in huge pages."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from math import prod

import numpy as np

from graphgen.eval import Array

ALIGNMENT = 64


def huge_pages(size: int) -> Array:
    """u8 [size] in huge pages if the system has them; freed with its views.

    With small pages, reading all weights once per token also walks page tables: 6 % to 130 % of a
    step were measured.
    """
    # Private: shared memory has small pages on most systems.
    memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)[:size]


def arrays_in_one(
    shapes: Sequence[tuple[tuple[int, ...], np.dtype[np.generic]]],
) -> list[Array]:
    """Uninitialized arrays of these shapes and types in one allocation, each aligned."""
    starts: list[int] = []
    size = 0
    for shape, dtype in shapes:
        starts.append(size)
        size += -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    memory = huge_pages(size)
    return [
        memory[at : at + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        for at, (shape, dtype) in zip(starts, shapes, strict=True)
    ]
