"""Edge values of element types and of the uses of integers, placed in every operand of a window.

A window whose ops are all elementwise, up to broadcasts and moves, is evaluated on one line: each
element takes another combination of edges, so that all pairs of edges of two operands meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from graphgen.eval import COMPOSITES, Array, numpy_dtype
from graphgen.ir import DType, Function, Literal, TensorType, Value
from graphgen.passes.proof.integers import range_of
from graphgen.passes.validate.intervals import Interval, numbers_inside

_SUMS = ("dot_general", "convolution")
# Draws of a window that is not elementwise, at most: of its integers, and of its floats.
_INTEGER_DRAWS, _FLOAT_DRAWS = 6, 4
# Draws with the edges of one integer operand, at most; four times as many in windows of few ops.
_ALONE, _FEW = 4, 6


def float_edges(dtype: DType) -> list[float]:
    """Numbers at which the arithmetic of a float type changes its behaviour."""
    kind = numpy_dtype(dtype)
    info = cast("Any", ml_dtypes.finfo(kind))
    largest, tiny, step = float(info.max), float(info.tiny), float(info.smallest_subnormal)
    root = math.sqrt(largest)
    sizes = [0.5, 1.0, 1.5, 2.5, 3.0, root * 0.75, root * 1.5, largest]
    sizes += [math.sqrt(tiny) * 0.375, tiny, tiny - step]
    sizes += [step]
    if dtype.bits >= 32:
        # Ends of narrower types: f16 overflows at 65520, bf16 has 8 digits, f8e4m3fn ends at 448.
        sizes += [65504.0, 65520.0, 257.0, 448.0, 464.0, 16777217.0, 2.0**-25, 88.5, 104.0]
    edges = [
        0.0,
        -0.0,
        *sizes,
        *[-size for size in sizes],
        math.inf,
        -math.inf,
        math.nan,
        -math.nan,
    ]
    return _of_type(edges, dtype)


# Digits of the mantissas of narrower floats: f8e4m3, bf16, f16 and f32.
_DIGITS = (3, 7, 10, 23)


def _ties(dtype: DType) -> list[float]:
    """A little more than half a step above 1, of each narrower type with room for it.

    Rounded to a type between the two first, such a number is a tie, and is rounded down.
    """
    unit = float(cast("Any", ml_dtypes.finfo(numpy_dtype(dtype))).eps)
    halves = [2.0 ** -(digits + 1) for digits in _DIGITS]
    return [1.0 + half + unit for half in halves if half >= 4 * unit]


def _of_type(edges: Sequence[float], dtype: DType) -> list[float]:
    """Different numbers of a type, of both signs of zero."""
    with np.errstate(all="ignore"):
        made = np.asarray(edges).astype(numpy_dtype(dtype)).astype(np.float64)
    return list({(str(x), math.copysign(1, x)): x for x in made.tolist()}.values())


def integer_edges(dtype: DType, words: Iterable[int]) -> list[int]:
    """Ends of an integer type, powers of two, and numbers of the program, each one off.

    All numbers of a type of at most 8 bits.
    """
    if dtype.name == "pred":
        return [0, 1]
    low, high = range_of(dtype)
    if dtype.bits <= 8:
        return list(range(low, high + 1))
    near = {0, 1, -1, low, low + 1, high, high - 1}
    for bit in (3, 4, 7, 8, 15, 16, dtype.bits - 2):
        near |= {(1 << bit) + off for off in (-1, 0, 1)} | {-(1 << bit) + off for off in (-1, 0)}
    for word in words:
        near |= {word - 1, word, word + 1, -word}
    return sorted(n for n in near if low <= n <= high)


@dataclass(frozen=True, slots=True)
class Words:
    """Numbers that a window compares, clamps or indexes with.

    Attributes:
        integers: constants, and sizes of dimensions.
        floats: constants.
    """

    integers: tuple[int, ...]
    floats: tuple[float, ...]

    @classmethod
    def of(cls, window: Function) -> Words:
        """The numbers of a window whose symbols are bound."""
        integers, floats = set[int](), set[float]()
        for op in window.block:
            value = op.attrs.get("value") if op.name == "constant" else None
            if (
                isinstance(value, Literal)
                and not value.dtype.is_complex
                and math.prod(value.shape) <= 16
            ):
                if value.dtype.is_float:
                    floats |= {float(number) for number in value.values()}
                else:
                    integers |= {int(number) for number in value.values()}
            for operand in op.operands if any(not v.dtype.is_float for v in op.operands) else ():
                integers |= {n for n in operand.shape if isinstance(n, int)}
            for result in op.results if op.name in ("dynamic_slice", "slice", "iota") else ():
                sizes = [n for n in result.shape if isinstance(n, int)]
                integers |= set(sizes)
                first = op.operands[0].shape if op.operands else ()
                pairs = zip(first, sizes, strict=False)
                integers |= {a - b for a, b in pairs if isinstance(a, int)}
        real = {float(x) for x in floats if x == x}
        return cls(tuple(sorted(int(n) for n in integers)), tuple(sorted(real)))


def _near(number: float) -> list[float]:
    """A number and its neighbours, half a unit and a unit away."""
    step = abs(number) * 2.0**-7 or 1.0
    return [number, number - step, number + step]


def edges_of(type_: TensorType, words: Words, within: Interval) -> Array:
    """The edges of an element type that are in an interval, in the type; at least one number."""
    dtype, kind = type_.dtype, numpy_dtype(type_.dtype)
    if dtype.is_complex:
        parts = [0.0, -0.0, 1.0, -1.5, 1e19, math.inf, math.nan]
        return np.array([complex(a, b) for a in parts for b in parts]).astype(kind)
    if dtype.is_float:
        found = float_edges(dtype)
        found += _of_type([x for word in words.floats for x in _near(word)], dtype)
        found += _ties(dtype)
        inside = numbers_inside(np.asarray(found, np.float64), within)
        some = [max(float(within.low), min(float(within.high), 0.0))]
        return (inside if len(inside) else np.asarray(some)).astype(kind)
    inside = [n for n in integer_edges(dtype, words.integers) if within.low <= n <= within.high]
    return np.array(inside or [int(within.low)], dtype=object).astype(kind)


# ---- other windows -------------------------------------------------------------------------------


def placed_draws(
    window: Function,
    edges: Mapping[str, Array],
    ordinary: Sequence[Sequence[Mapping[str, Array]]],
    sizes: Mapping[str, int],
    seed: int,
) -> list[list[dict[str, Array]]]:
    """Draws of a window's arguments per rank, with edges in one kind of operands at a time.

    Edges of integers are placed in all of them, and in each one beside indices that fit: a row that
    does not exist hides what its position does.

    Args:
        window: with its symbols bound.
        edges: of each argument.
        ordinary: draws of other values of all arguments, per rank.
        sizes: of the dimension that an integer indexes, by name.
        seed: of the choice of places.
    """
    rng = np.random.default_rng([seed, 13])
    integers = [v for v in window.args if not _is_real(v.dtype) and v.name in edges]
    floats = [v for v in window.args if _is_real(v.dtype) and v.name in edges]
    out: list[list[dict[str, Array]]] = []
    alone = _ALONE * (4 if window.block.size <= _FEW else 1)
    out += _integer_draws(rng, integers, edges, ordinary, sizes, alone)
    # Sums of products of subnormal numbers take a hundred times as long.
    slow = any(op.name in (*_SUMS, *COMPOSITES) for op in window.block)
    for value in floats[:_FLOAT_DRAWS]:
        found = edges[value.name or ""]
        wide = np.complex128 if value.dtype.is_complex else np.float64
        size = np.abs(found.astype(wide))
        least = 2.0**-126 if slow else 0.0
        finite = np.isfinite(size)
        # Infinities and NaN hide what other elements do.
        for some in (found[finite & ((size == 0) | (size >= least))], found[~finite]):
            turns = math.ceil(some.size / max(1, math.prod(value.type.dims)))
            for turn in range(min(_ALONE, turns)):
                out.append(_draw(rng, ordinary[0], {value: some}, 0.35, turn))
    return out


def _integer_draws(
    rng: np.random.Generator,
    integers: Sequence[Value],
    edges: Mapping[str, Array],
    ordinary: Sequence[Sequence[Mapping[str, Array]]],
    sizes: Mapping[str, int],
    alone: int,
) -> list[list[dict[str, Array]]]:
    if not integers:
        return []
    # Enough draws for the smallest operand to take each of its edges.
    needed = [
        math.ceil(len(edges[v.name or ""]) / max(1, math.prod(v.type.dims))) + 1 for v in integers
    ]
    placed = {value: edges[value.name or ""] for value in integers}
    turns = min(_INTEGER_DRAWS, max(needed))
    out = [_draw(rng, ordinary[0], placed, 0.75, turn) for turn in range(turns)]
    for end in (0, -1):
        # All elements alike: as many as can be are counted, summed or chosen.
        alike = {value: edges[value.name or ""][end:][:1] for value in integers}
        out.append(_draw(rng, ordinary[0], alike, 1.0, 0))
    if len(integers) == 1 and not sizes:
        return out
    for value, most in zip(integers, needed, strict=True):
        name = value.name or ""
        near = _near_end(edges[name], sizes[name]) if name in sizes else edges[name]
        for turn in range(min(alone, most)):
            base = _fitting(rng, integers, ordinary[turn % len(ordinary)], sizes, alike=turn % 2)
            chosen, share = (near, 1.0) if turn % 4 < 2 else (edges[name], 0.5)
            out.append(_draw(rng, base, {value: chosen}, share, turn))
    return out


def _near_end(edges: Array, size: int) -> Array:
    """The edges of an index around a dimension's first and last element."""
    near = edges[(edges >= -1) & (edges <= size + 1)]
    return near if near.size else edges


def _fitting(
    rng: np.random.Generator,
    integers: Sequence[Value],
    base: Sequence[Mapping[str, Array]],
    sizes: Mapping[str, int],
    *,
    alike: int,
) -> list[dict[str, Array]]:
    """Integers that fit what they index; if ``alike``, all the same. Floats change places."""
    out = [dict(one) for one in base]
    chosen = {value.name or "" for value in integers}
    for name in sorted(base[0].keys() - chosen) if len(base) == 1 else ():
        out[0][name] = rng.permutation(base[0][name].ravel()).reshape(base[0][name].shape)
    for value in integers:
        name = value.name or ""
        high = max(1, min(sizes.get(name, 8), 1 if alike else 1 << 30))
        numbers = rng.integers(0, high, base[0][name].shape)
        for one in out:
            one[name] = numbers.astype(one[name].dtype)
    return out


def _is_real(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_complex


def _draw(
    rng: np.random.Generator,
    ordinary: Sequence[Mapping[str, Array]],
    placed: Mapping[Value, Array],
    share: float,
    turn: int,
) -> list[dict[str, Array]]:
    """Ordinary values with edges in a share of some operands' elements, alike on all ranks.

    Where all fit, each has a place; others begin at ``turn`` times the number of elements.
    """
    out = [dict(one) for one in ordinary]
    for value, edges in placed.items():
        name = value.name or ""
        shape = ordinary[0][name].shape
        count = math.prod(shape)
        numbers = (np.arange(count) + turn * count) % len(edges)
        order = rng.permutation(count)
        chosen = np.empty_like(edges, shape=count)
        chosen[order] = edges[numbers]
        where = rng.random(count) < (share if count > 1 else 1.0)
        where[order[: len(edges)]] |= count >= len(edges) or share == 1.0
        chosen, where = chosen.reshape(shape), where.reshape(shape)
        for one in out:
            one[name] = np.where(where, chosen, one[name]).astype(one[name].dtype)
    return out


# ---- calls of language models --------------------------------------------------------------------

PLANNED = ("positions", "lengths", "seq_ids")
# Positions that are tried where the program does not bound them.
_STARTS = (0, 1, 2, *(2**bit + off for bit in (7, 8, 15, 16) for off in (-2, -1, 0)), 2**17 - 1)


@dataclass(frozen=True, slots=True)
class PlannedSizes:
    """Sizes of a call of a language model.

    Attributes:
        rows: B.
        tokens: S.
        cache_rows: R.
        slots: of the cache that are attended to; ``None`` for no bound.
        shuffled: whether row b of the call may be any row of the cache.
    """

    rows: int
    tokens: int
    cache_rows: int
    slots: int | None
    shuffled: bool


def planned_arrays(rng: np.random.Generator, sizes: PlannedSizes) -> dict[str, Array]:
    """Positions s32 [B,S], lengths and seq_ids s32 [B] of a call that a serving system could make.

    A row goes on at any position; a row of several is idle now and then.
    """
    positions = np.full((sizes.rows, sizes.tokens), -1, np.int32)
    lengths = np.zeros(sizes.rows, np.int32)
    ids = np.full(sizes.rows, sizes.cache_rows, np.int32)
    order = np.arange(sizes.cache_rows)
    if sizes.shuffled:
        rng.shuffle(order)
    for row in range(min(sizes.rows, sizes.cache_rows)):
        if sizes.rows > 1 and rng.random() < 0.2:
            continue
        most = sizes.tokens if sizes.slots is None else min(sizes.tokens, sizes.slots)
        count = most if rng.random() < 0.5 else int(rng.integers(1, most + 1))
        start = _start(rng, None if sizes.slots is None else sizes.slots - count)
        positions[row, :count] = np.arange(start, start + count)
        lengths[row], ids[row] = start + count, order[row]
    return {"positions": positions, "lengths": lengths, "seq_ids": ids}


def _start(rng: np.random.Generator, last: int | None) -> int:
    """A first position, up to the last one that is possible; half of them are edges."""
    high = 2**17 if last is None else last
    if rng.random() < 0.5:
        return int(rng.integers(0, high + 1))
    edges = [start for start in (0, high, *_STARTS) if start <= high]
    return edges[int(rng.integers(0, len(edges)))]
