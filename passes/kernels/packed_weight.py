"""The layout in which the kernels of the CPU read a weight: tiles of 16 columns.

    16-bit brain floats, numbers of 8 bits   w[N,K] -> [N/16, K/2, 16, 2]
    integers of 4 bits, two a byte           w[N,K] -> u8[N/16, K/8, 16, 4]
    f32, f16, scales and zero points         w[N,K] -> [N/16, K, 16]

N and K are rounded up, with zeros. A step through the depth reads one row of a tile, which is one
vector register for every instruction set; a pair of bf16 is what their dot products take, also one
that was widened from 8 bits, and dot products of 8-bit integers take two steps. So one layout
serves all CPUs, and packing is ops like any other: ``lift-weights`` moves it out of the programs,
and artifacts hold packed weights.

The four bytes of a column have the numbers of the depths (0, 2), (4, 6), (1, 3) and (5, 7), the
first in the low half of a byte: a word of them, moved down by 0, 4, 8 and 12 bits, has a pair of
neighbors at the lower end of its 16-bit halves.
"""

from __future__ import annotations

from typing import Final

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import bf16, s4, u8
from graphgen.passes.canonical.slice_algebra import cut

LANES: Final = 16
# The depth of a word of 4-bit numbers: [byte % 2, low or high half, byte / 2] of each column.
_WORD: Final = (2, 2, 2)


def depth_of_step(dtype: DType) -> int:
    """Elements of a column that lie side by side."""
    if dtype is s4:
        return 8
    return 2 if dtype is bf16 or dtype.bits == 8 else 1


def pack(b: Builder, weight: Value, step: int = 0) -> Value:
    """Pack a weight [N, K].

    Args:
        b: appends the ops.
        weight: any type that is packed.
        step: elements of a column that lie side by side; 0 for those of the type.
    """
    columns, depth = weight.type.dims
    step = step or depth_of_step(weight.dtype)
    more = (-columns % LANES, -depth % step)
    if any(more):
        weight = b.pad(
            weight, b.literal(0.0 if weight.dtype.is_float else 0, weight.dtype), (0, 0), more
        )
    columns, depth = weight.type.dims
    if step == 1:
        return b.transpose(b.reshape(weight, (columns // LANES, LANES, depth)), (0, 2, 1))
    if step == 8:
        return _two_a_byte(b, weight)
    tiles = b.reshape(weight, (columns // LANES, LANES, depth // step, step))
    return b.transpose(tiles, (0, 2, 1, 3))


def unpack(b: Builder, packed: Value, columns: int, depth: int) -> Value:
    """Return the weight [N, K] that :func:`pack` was given.

    Args:
        b: appends the ops.
        packed: the tiles.
        columns: N.
        depth: K.
    """
    if packed.dtype is u8:
        whole = _one_a_byte(b, packed)
    else:
        tiles, steps, _, *inner = packed.type.dims
        step = inner[0] if inner else 1
        order = (0, 2, 1) if step == 1 else (0, 2, 1, 3)
        whole = b.reshape(b.transpose(packed, order), (tiles * LANES, steps * step))
    return cut(b, whole, ((0, columns, 1), (0, depth, 1)))


def pack_slots(b: Builder, weights: Value, front: int) -> Value:
    """Pack weights [slots, N, K] of floats, each after ``front`` columns of zeros."""
    slots, columns, depth = weights.type.dims
    step = depth_of_step(weights.dtype)
    more = (0, -(front + columns) % LANES, -depth % step)
    if front or any(more):
        weights = b.pad(weights, b.literal(0.0, weights.dtype), (0, front, 0), more)
    columns, depth = weights.type.dims[1:]
    if step == 1:
        tiles = b.reshape(weights, (slots, columns // LANES, LANES, depth))
        return b.transpose(tiles, (0, 1, 3, 2))
    tiles = b.reshape(weights, (slots, columns // LANES, LANES, depth // step, step))
    return b.transpose(tiles, (0, 1, 3, 2, 4))


def unpack_slots(b: Builder, packed: Value, front: int, columns: int, depth: int) -> Value:
    """Return weights [slots, K, N] of those that :func:`pack_slots` packed.

    Args:
        b: appends the ops.
        packed: the tiles.
        front: columns of zeros before those of the weights.
        columns: N.
        depth: K.
    """
    slots, tiles, steps, lanes, *inner = packed.type.dims
    step = inner[0] if inner else 1
    order = (0, 2, 4, 1, 3) if inner else (0, 2, 1, 3)
    whole = b.reshape(b.transpose(packed, order), (slots, steps * step, tiles * lanes))
    return cut(b, whole, ((0, slots, 1), (0, depth, 1), (front, front + columns, 1)))


def _two_a_byte(b: Builder, numbers: Value) -> Value:
    """u8[N/16, K/8, 16, 4] of s4[N, K]."""
    columns, depth = numbers.type.dims
    words = b.reshape(numbers, (columns // LANES, LANES, depth // 8, *_WORD))
    pairs = b.reshape(
        b.transpose(words, (0, 2, 1, 5, 3, 4)), (columns // LANES, depth // 8, LANES, 4, 2)
    )
    return b.bitcast_convert(pairs, u8)


def _one_a_byte(b: Builder, packed: Value) -> Value:
    """s4[N, K] of u8[N/16, K/8, 16, 4]."""
    tiles, steps = packed.type.dims[:2]
    pairs = b.bitcast_convert(packed, s4)
    words = b.transpose(b.reshape(pairs, (tiles, steps, LANES, *_WORD)), (0, 2, 1, 4, 5, 3))
    return b.reshape(words, (tiles * LANES, steps * 8))
