"""Numbers of 4 or 8 bits in 32-bit words: unpacked in IR, packed by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import dtype

if TYPE_CHECKING:
    from graphgen.eval import Array

# The place in a word of each of eight neighbors, lowest bits first.
IN_ORDER = (0, 1, 2, 3, 4, 5, 6, 7)
# AWQ: https://github.com/mit-han-lab/llm-awq, pack_intweight.
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def unpack(b: Builder, words: Value, dim: int, bits: int, order: Sequence[int] = IN_ORDER) -> Value:
    """The unsigned numbers in s32 ``words``; along ``dim`` 32 / bits as many.

    They are never wider than a byte: a program that holds them as words needs eight times as much.

    Args:
        b: the builder.
        words: any shape.
        dim: the dimension along which neighbors share a word.
        bits: of one number, 4 or 8.
        order: the place in the word of each neighbor.
    """
    count, rank = 32 // bits, words.type.rank
    numbers = b.bitcast_convert(words, dtype(f"u{bits}"))
    if tuple(order) == AWQ_ORDER:
        # Neighbor 2a + b is at place 4b + a.
        halves = b.reshape(numbers, [*words.shape, 2, 4])
        turned = b.transpose(halves, [*range(rank), rank + 1, rank])
        numbers = b.reshape(turned, [*words.shape, count])
    beside = [*range(dim + 1), rank, *range(dim + 1, rank)]
    numbers = b.transpose(numbers, beside) if dim + 1 < rank else numbers
    size = words.shape[dim] * count
    return b.reshape(numbers, [*words.shape[:dim], size, *words.shape[dim + 1 :]])


def pack(numbers: Array, dim: int, bits: int, order: Sequence[int] = IN_ORDER) -> Array:
    """The s32 words of unsigned numbers: the inverse of :func:`unpack`; zeros fill the last."""
    import numpy as np

    count = 32 // bits
    moved = np.moveaxis(np.asarray(numbers).astype(np.uint32), dim, -1)
    rest = -moved.shape[-1] % count
    filled = np.pad(moved, [*[(0, 0)] * (moved.ndim - 1), (0, rest)])
    grouped = filled.reshape(*filled.shape[:-1], -1, count)
    words = np.zeros(grouped.shape[:-1], np.uint32)
    for index in range(count):
        words |= grouped[..., index] << np.uint32(bits * order[index])
    return np.ascontiguousarray(np.moveaxis(words.view(np.int32), -1, dim))
