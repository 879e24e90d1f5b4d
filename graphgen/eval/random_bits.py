"""NumPy rules of random bits: Threefry 2x32 and Philox 4x32, bit for bit as XLA makes them.

Both are the counter-based generators of Salmon et al., "Parallel random numbers: as easy as 1, 2,
3" (2011): 20 and 10 rounds of a block cipher over a counter, with the first word of the state as
the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from graphgen.eval.arithmetic import Arithmetic, Array, numpy_dtype
from graphgen.eval.registry import multi_result_rule, static
from graphgen.ir import Attrs

Words = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.uint64]

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))


def _halves(x: Longs) -> tuple[Words, Words]:
    """The low and the high word."""
    return (x & _LOW).astype(np.uint32), (x >> _HALF).astype(np.uint32)


def _joined(low: Words, high: Words) -> Longs:
    return low.astype(np.uint64) | (high.astype(np.uint64) << _HALF)


def threefry(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    """Threefry 2x32 of 20 rounds; key and counter are a low and a high word each."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn)))
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def philox(key: tuple[Words, Words], counter: Sequence[Words]) -> list[Words]:
    """Philox 4x32 of 10 rounds; words from the least significant on."""
    x, (first, second) = list(counter), key
    for _ in range(10):
        low0, high0 = _halves(x[0].astype(np.uint64) * _MULTIPLIERS[0])
        low1, high1 = _halves(x[2].astype(np.uint64) * _MULTIPLIERS[1])
        x = [high1 ^ x[1] ^ first, low1, high0 ^ x[3] ^ second, low0]
        first, second = first + _WEYL[0], second + _WEYL[1]
    return x


def _counters(start: Longs, shape: Sequence[int]) -> Longs:
    count = np.arange(prod(shape), dtype=np.uint64)
    return (start + count).reshape(tuple(shape))


def _split(shape: Sequence[int]) -> tuple[int, list[int]]:
    """The dimension whose neighbors are the two words of one block, and the shape of blocks.

    It is the first one of even size, else the first of the largest.
    """
    even = [dim for dim, size in enumerate(shape) if size % 2 == 0]
    dim = even[0] if even else max(range(len(shape)), key=lambda dim: shape[dim])
    return dim, [*shape[:dim], -(-shape[dim] // 2), *shape[dim + 1 :]]


def _threefry_bits(state: Longs, shape: Sequence[int], bits: int) -> tuple[Longs, Array]:
    key = _halves(state[0])
    sizes = tuple(shape) or (1,)
    axis, blocks = (0, list(sizes)) if bits == 64 else _split(sizes)
    x, y = threefry(key, _halves(_counters(state[1], blocks)))
    after = np.stack([state[0], state[1] + np.uint64(prod(blocks))])
    if bits == 64:
        return after, _joined(x, y).reshape(tuple(shape))
    pairs = np.stack([x, y], axis + 1)
    whole = pairs.reshape([*blocks[:axis], 2 * blocks[axis], *blocks[axis + 1 :]])
    cut = whole[(slice(None),) * axis + (slice(0, sizes[axis]),)]
    return after, cut.reshape(tuple(shape)) if shape else cut[0]


def _philox_bits(state: Longs, shape: Sequence[int], bits: int) -> tuple[Longs, Array]:
    count = prod(shape) * (2 if bits == 64 else 1)
    blocks = -(-count // 4)
    # XLA's: a state of two words has the key as the high half of its counter as well.
    wide = state if len(state) == 3 else np.append(state, state[0])
    low = wide[1] + np.arange(blocks, dtype=np.uint64)
    high = wide[2] + (low < wide[1])
    words = philox(_halves(wide[0]), [*_halves(low), *_halves(high)])
    after = wide.copy()
    after[1] += np.uint64(blocks)
    after[2] += np.uint64(after[1] < wide[1])
    if bits == 64:
        rows = np.stack([_joined(*words[:2]), _joined(*words[2:])], -1)
    else:
        rows = np.stack(words, -1)
    made = rows.reshape(-1)[: prod(shape)].reshape(tuple(shape))
    return after[: len(state)], made


@multi_result_rule("rng_bit_generator")
def _rng_bit_generator(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    """Narrow numbers are the low bits of words; XLA on a CPU takes Philox where it may choose."""
    kind, shape = attrs.element("dtype"), static(attrs, "shape")
    make = _threefry_bits if attrs.text("algorithm") == "rng_three_fry" else _philox_bits
    after, bits = make(x[0].astype(np.uint64), shape, kind.bits)
    made = bits.astype(f"u{kind.bits // 8}").view(numpy_dtype(kind))
    return [after, made.astype(how.dtype(kind))]
