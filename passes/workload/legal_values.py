"""Legal values of inputs and states, drawn to the ends of their domains, or of their types.

The first draw of an integer has ordinary values: of its domain, inside the dimension it indexes, or
small. Further draws place the ends and their neighbours, those of indexed dimensions, and powers of
two, in turn from call to call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Domain, DType, TensorType
from graphgen.ir.dtype import highest, lowest, u64
from graphgen.passes.workload.integer_uses import IntegerUse

NO_USE = IntegerUse()
# Turns of a loop: 0 and fewer are legal, 257 are more than 8 bits count, and a large number would
# take as many steps.
_TURNS = (0, 1, -1, 2, 5, 257)
# Ordinary integers are below this where nothing is known about them.
_SMALL = 5
# All values of a range of as many are drawn.
_FEW = 256
# Calls that a script makes at most to place special values.
MOST_CALLS = 16


def special_integers(
    dtype: DType, use: IntegerUse = NO_USE, domain: Domain | None = None
) -> tuple[int, ...]:
    """Integers at which programs differ most often, the most telling first.

    Args:
        dtype: an integer type; its ends are among them.
        use: adds the ends of dimensions, and of shifts.
        domain: with all symbols bound; nothing outside of it is legal. All of a small one is given.
    """
    low, high = int(lowest(dtype)), int(highest(dtype))
    found: list[int] = []
    if domain is not None:
        if domain.values:
            return tuple(int(value) for value in domain.values)
        low, high = (int(end) for end in domain.ends(dtype))
        found += [low, high, low + 1, high - 1]
        if high - low < _FEW:
            found += range(low, high + 1)
    if use.turns:
        ends = (low, high) if domain is not None and high <= max(_TURNS) else ()
        return _kept([*ends, *_TURNS], low, high)
    for size in use.sizes:
        found += [-1, size - 1, size, 0, size + 1, 1]
    if use.shifts:
        found += [dtype.bits - 1, dtype.bits, 0, 1, -1]
    found += [low, high, 0, 1, -1, low + 1, high - 1]
    if not use.sizes and not use.shifts:
        # Borders of 8 and 16 bits first, then all others.
        for bits in (7, 8, 15, 16, *range(1, dtype.bits)):
            found += [x for near in (-1, 0, 1) for x in (2**bits + near, -(2**bits) + near)]
    return _kept(found, low, high)


def _kept(numbers: Iterable[int], low: int, high: int) -> tuple[int, ...]:
    """Each number once, in order, inside of a range; its low end where none is."""
    return tuple(dict.fromkeys(x for x in numbers if low <= x <= high)) or (low,)


def calls_for(specials: int, elements: int) -> int:
    """Number of calls in which an array with ``elements`` has place for all special values."""
    return min(-(-specials // max(elements, 1)), MOST_CALLS)


def draw_integers(
    rng: np.random.Generator,
    type_: TensorType,
    use: IntegerUse = NO_USE,
    domain: Domain | None = None,
    turn: int = 0,
) -> Array:
    """An array of legal integers.

    Args:
        rng: the array's own.
        type_: static, of an integer type.
        use: what the program does with it.
        domain: with all symbols bound.
        turn: 0 for ordinary values; from 1 on, special values in turn.
    """
    made = np.asarray(_ordinary(rng, type_, use, domain))
    if turn:
        specials = special_integers(type_.dtype, use, domain)
        if domain is None and not use.turns:
            made = _with_any(rng, type_, made, len(specials))
        made = _with_specials(rng, made, specials, turn - 1)
    return made.astype(np.uint64 if type_.dtype is u64 else np.int64).astype(
        numpy_dtype(type_.dtype)
    )


def _ordinary(
    rng: np.random.Generator, type_: TensorType, use: IntegerUse, domain: Domain | None
) -> Array:
    dims = type_.dims
    if domain is not None and domain.values:
        return rng.choice(np.array([int(value) for value in domain.values], object), dims)
    low, high = 0, min(_SMALL, int(highest(type_.dtype)) + 1)
    if use.sizes and not use.turns:
        high = max(min(use.sizes), 1)
    if domain is not None:
        least, most = (int(end) for end in domain.ends(type_.dtype))
        inside = least <= high - 1 and low <= most and bool(use.sizes or use.turns)
        low, high = (max(low, least), min(high - 1, most) + 1) if inside else (least, most + 1)
    return _uniform(rng, low, high - 1, dims)


def _uniform(rng: np.random.Generator, low: int, high: int, dims: Sequence[int]) -> Array:
    """Integers from ``low`` to ``high``, of up to 64 bits, as Python's."""
    kind = np.uint64 if high > 2**63 - 1 else np.int64
    return rng.integers(low, high, tuple(dims), dtype=kind, endpoint=True).astype(object)


def _with_specials(
    rng: np.random.Generator, made: Array, specials: Sequence[int], turn: int
) -> Array:
    """Special values in the place of some elements: the next ones in order, then any of them."""
    flat = made.reshape(-1)
    count = min(len(specials), flat.size)
    places = range(turn * count, (turn + 1) * count)
    most = MOST_CALLS * flat.size
    sure = len(specials) if len(specials) <= most else most - 4 * flat.size
    values = [specials[at if at < sure else int(rng.integers(len(specials)))] for at in places]
    flat[rng.permutation(flat.size)[:count]] = np.array(values, object)
    return flat.reshape(made.shape)


def _with_any(rng: np.random.Generator, type_: TensorType, made: Array, specials: int) -> Array:
    """A quarter of the elements of a larger array replaced by any values of the type."""
    if made.size < 2 * specials:
        return made
    ends = int(lowest(type_.dtype)), int(highest(type_.dtype))
    return np.where(rng.random(made.shape) < 1 / 4, _uniform(rng, *ends, made.shape), made)


def draw_within(
    rng: np.random.Generator, type_: TensorType, domain: Domain, turn: int = 0
) -> Array:
    """An array of values of a domain, its ends among them; see :func:`draw_integers`."""
    kind = numpy_dtype(type_.dtype)
    if type_.dtype.is_integer:
        return draw_integers(rng, type_, NO_USE, domain, turn)
    if domain.values:
        return np.asarray(rng.choice(np.array(domain.values), type_.dims)).astype(kind)
    low, high = domain.ends(type_.dtype)
    if not type_.dtype.is_float:
        return np.asarray(rng.integers(int(low), int(high), type_.dims, endpoint=True)).astype(kind)
    # Of the widest floats, the difference of the ends is infinite.
    share = rng.random(type_.dims)
    made = np.asarray(float(low) * (1 - share) + float(high) * share)
    ends = rng.random(type_.dims)
    made = np.where(ends < 1 / 16, float(low), np.where(ends > 15 / 16, float(high), made))
    flat = made.reshape(-1)
    for place, end in enumerate((low, high)):
        if flat.size > place and (turn or flat.size > 2):
            flat[(turn + place) % flat.size] = float(end)
    if turn and flat.size == 1:
        flat[0] = float((low, high)[turn % 2])
    made = flat.reshape(type_.dims).astype(kind)
    # A type of few digits rounds beyond the ends.
    wide = made.astype(np.float64)
    return np.where((wide < low) | (wide > high), np.asarray(low).astype(kind), made)
