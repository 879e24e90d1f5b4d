"""Numbers from the whole range of an element type, for windows that are compared on lines.

Edges show a rewrite that is wrong at the ends. One that is wrong here and there, such as a division
by multiplication with an inexact number, needs many numbers of every size.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.eval.element_kinds import has_floats
from graphgen.ir import DType
from graphgen.ir import dtype as known_dtype
from graphgen.passes.proof.integers import range_of
from graphgen.passes.validate.intervals import Interval, numbers_inside

# Types of so few bits have all of their numbers, where there is one operand.
_ALL_BITS = 16
# Types that others are narrowed to.
_NARROW = ("f8e4m3", "f8e4m3fn", "f8e5m2", "f16", "bf16")
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def whole_range(
    dtype: DType,
    edges: Array,
    within: Interval,
    words: tuple[int, ...],
    seed: int,
    *,
    count: int,
    alone: bool,
    exact: bool,
) -> Array:
    """Numbers of a type, in an interval; maybe none.

    Integers: a third each uniform over the interval, of any size, and multiples of a number of the
    program, one off. Floats: whole and half numbers of any size, any bits, and, where bits have to
    agree, the neighbours of edges.

    Args:
        dtype: of the numbers.
        edges: of the type.
        within: the interval.
        words: numbers of the program.
        seed: of the numbers.
        count: of the numbers, at most.
        alone: whether there is no other operand: types of 16 bits then have all of their numbers.
        exact: whether bits have to agree. Else floats are left out that are beyond the largest
            number of a narrower type and are rounded to it.
    """
    if dtype.is_complex or dtype.name == "pred" or dtype.bits not in _UNSIGNED:
        return edges[:0]
    rng = np.random.default_rng([seed, 37])
    if dtype.bits <= _ALL_BITS and alone:
        found = np.arange(1 << dtype.bits).astype(_UNSIGNED[dtype.bits])
        found = numbers_inside(_quiet(found.view(numpy_dtype(dtype))), within)
        return found if exact or not has_floats(dtype) else _without_ends(found)
    if has_floats(dtype):
        found = numbers_inside(_floats(dtype, edges if exact else edges[:0], rng, count), within)
        return (found if exact else _without_ends(found))[:count]
    return _integers(dtype, within, words, rng, count)


@cache
def narrow_ends() -> tuple[tuple[float, float], ...]:
    """Of each narrow type the largest number, and the least one that is rounded beyond it."""
    out: list[tuple[float, float]] = []
    for name in _NARROW:
        info = cast("Any", ml_dtypes.finfo(numpy_dtype(known_dtype(name))))
        largest = float(info.max)
        half_step = 2.0 ** (math.floor(math.log2(largest)) - info.nmant - 1)
        out.append((largest, largest + half_step))
    return tuple(out)


def _without_ends(found: Array) -> Array:
    """The numbers but those that a narrower type rounds to its largest one."""
    size = np.abs(found.astype(np.float64))
    kept = np.ones(found.shape, bool)
    for largest, infinite in narrow_ends():
        kept &= ~((size > largest) & (size < infinite))
    return found[kept]


def _quiet(found: Array) -> Array:
    """The numbers without signalling NaN, of which NumPy warns."""
    if found.dtype.kind not in "iu":
        with np.errstate(invalid="ignore"):
            found[np.isnan(found)] = np.nan
    return found


def _floats(dtype: DType, edges: Array, rng: np.random.Generator, count: int) -> Array:
    kind, bits = numpy_dtype(dtype), _UNSIGNED[dtype.bits]
    top = np.iinfo(bits).max
    with np.errstate(all="ignore"):
        near = edges.astype(kind).view(bits)
        near = np.concatenate([near + bits(1), near - bits(1)])
        sizes = np.exp2(rng.uniform(0, 26, count // 2))
        halves = np.round(sizes * rng.choice((-1.0, 1.0), sizes.size)) / 2
        random = rng.integers(0, top, count, bits, endpoint=True)
        parts = (near.view(kind), halves.astype(kind), random.view(kind))
    few, more, rest = (rng.permutation(_quiet(part)) for part in parts)
    third = count // 3
    return np.concatenate([few[:third], more[:third], rest])


def _integers(
    dtype: DType, within: Interval, words: tuple[int, ...], rng: np.random.Generator, count: int
) -> Array:
    low, high = range_of(dtype)
    low, high = max(low, int(max(within.low, low))), min(high, int(min(within.high, high)))
    if low > high:
        return np.zeros(0, numpy_dtype(dtype))
    some = count // 3
    kind = np.int64 if low < 0 else np.uint64
    uniform = rng.integers(low, high, some, kind, endpoint=True)
    sizes = np.exp2(rng.uniform(0, dtype.bits, some)).tolist()
    signs = rng.choice((-1, 1), some).tolist() if low < 0 else [1] * some
    found = [int(size) * sign for size, sign in zip(sizes, signs, strict=True)]
    factors = [abs(word) for word in words if abs(word) > 1]
    for number, factor in enumerate(rng.choice(factors, some).tolist() if factors else ()):
        times = int(uniform[number]) // factor
        found.append(times * factor + number % 3 - 1)
    every = [*uniform.tolist(), *found]
    return np.array([n for n in every if low <= n <= high], dtype=object).astype(numpy_dtype(dtype))
