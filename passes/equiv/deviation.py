"""Distance of two sets of outcomes.

Under budget 0 two arrays are equal bit for bit: zeros of other signs differ, NaN equals NaN
whatever its sign and payload. Under any other budget two distances are held against it. The first
is relative to the whole: the largest difference over the largest value. The second is of each
element over its own size, so that a wrong channel of size 1e-10 beside one of size 1 is seen. It
leaves out what rounding at the size of the whole explains, which is all that is left of an element
where larger numbers cancel: see :class:`RoundingNoise`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from graphgen.eval import Array
from graphgen.eval.element_kinds import real_parts
from graphgen.ir.dtype import bf16, f16, f32, f64, lowest

# Largest relative difference in float64 of programs that mean the same.
MEANING_BUDGET = 1e-9
# Half a step of a float64 of size 1.
WIDE_UNIT = 2.0**-53
# Independent roundings add up as their root: as many are the error of 64 on a path.
PATH_ROUNDINGS = 8.0
# Budgets from here on are those of quantized numbers.
COARSE = 2.0**-5
# The lowest floats, which masked scores are set to: they say nothing about the size of others.
_MASKS: Final = tuple([float(lowest(kind)) for kind in (f16, bf16, f32, f64)])
_LEAST_MASK: Final = min(-mask for mask in _MASKS)


@dataclass(frozen=True, slots=True)
class Deviation:
    """The worst difference of two runs of one workload.

    Attributes:
        name: the output or state it was found in.
        call: number of the call, from 0.
        max_abs: largest absolute difference, ``inf`` where one is NaN and the other is not.
        relative: ``max_abs`` over the largest absolute value of the reference.
        ulp: largest difference in units of the last place of f32.
        cosine: of the flattened values, 1 where both are zero.
        element: largest difference of an element over its own size, of those that rounding at the
            size of the whole does not explain; 0 where it explains all.
        bits: number of elements that do not have the same bits, all NaN being equal.
        places: flat indices of the elements with the largest difference, the largest one over its
            own size, and the first other bits.
        amplified: whether ``relative`` is at most the error that the reference has itself, and that
            is more than a path of roundings explains: see :class:`RoundingNoise`.
        unexplained: the largest distance of those that are not amplified rounding, of all that this
            one is the worst of.
    """

    name: str
    call: int
    max_abs: float
    relative: float
    ulp: float
    cosine: float
    element: float = 0.0
    bits: int = 0
    places: tuple[int, int, int] = field(default=(0, 0, 0), compare=False)
    amplified: bool = field(default=False, compare=False)
    unexplained: float = field(default=0.0, compare=False)

    def within(self, budget: float) -> bool:
        """True if neither distance exceeds the budget; under budget 0, if all bits are equal.

        Numbers of a few bits are off by a share of the whole: under their budgets elements are not
        held against their own size.
        """
        if budget == 0:
            return self.bits == 0
        if self.amplified and self.unexplained <= budget:
            return True
        return self.relative <= budget and (self.element <= budget or budget >= COARSE)

    @property
    def size(self) -> float:
        """The larger one of both relative distances."""
        return max(self.relative, self.element)

    def place(self, budget: float) -> int:
        """Flat index of an element because of which the difference exceeds the budget."""
        if self.relative > budget:
            return self.places[0]
        return self.places[1] if COARSE > budget < self.element else self.places[2]

    def beyond(self, budget: float) -> str:
        """Words on a difference that the relative distance does not show; empty where it does."""
        if self.within(budget) or self.relative > budget:
            return ""
        if self.element > budget:
            return f"an element is off by {self.element:.1e} of its own size"
        many = f"{self.bits} element{'s differ' if self.bits > 1 else ' differs'}"
        return f"{many} in the sign of zero"


NONE = Deviation("", 0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class RoundingNoise:
    """The rounding of a run in a program's own types, which separates cancellation from faults.

    An element counts as wrong by its own size only if it is off by more than rounding at the size
    of the whole: 16 times the largest of a rounding of the largest value (``unit``), the error that
    the reference has itself in this array (``exact``), and the difference of elements that are
    about as large as the largest. In types of 32 bits and more, eight or more elements of one
    size that the reference has right, far more exactly than that, show that nothing cancels there;
    64 times their own error counts then.

    A program that amplifies rounding, as a softmax of large scores does, is far from what it means
    by itself. Where the reference is off by more than 8 roundings, as many as the path through a
    few layers adds up to, a difference that is not larger than its own error is rounding as well.

    Attributes:
        unit: half a step at 1 of the coarsest float type that either side computes in.
        exact: what the reference is in float64, of each call; ``None`` where it is not known.
    """

    unit: float
    exact: Sequence[dict[str, Array]] | None = None

    def of(self, call: int, name: str) -> Array | None:
        """The float64 values of one output or state."""
        return None if self.exact is None else self.exact[call].get(name)


def compare(
    reference: Sequence[dict[str, Array]],
    other: Sequence[dict[str, Array]],
    noise: RoundingNoise | None = None,
) -> Deviation:
    """The worst difference over all calls, outputs and states.

    Args:
        reference, other: outcomes of each call.
        noise: the rounding of both, where they were not computed in float64.
    """
    worst = NONE
    for call, (left, right) in enumerate(zip(reference, other, strict=True)):
        for name, array in left.items():
            worst = worse(worst, _named(name, call, array, right[name], noise))
    return worst


def first_beyond(
    reference: Sequence[dict[str, Array]],
    other: Iterable[dict[str, Array]],
    limit: float,
    noise: RoundingNoise | None = None,
) -> Deviation | None:
    """The first call and output whose difference exceeds ``limit``; later calls are not run."""
    for call, (left, right) in enumerate(zip(reference, other, strict=True)):
        for name, array in left.items():
            found = _named(name, call, array, right[name], noise)
            if not found.within(limit):
                return found
    return None


def _named(
    name: str, call: int, reference: Array, other: Array, noise: RoundingNoise | None
) -> Deviation:
    if noise is None:
        return difference(name, call, reference, other)
    return difference(name, call, reference, other, noise.unit, noise.of(call, name))


def worse(one: Deviation, other: Deviation) -> Deviation:
    """The larger one of two differences."""
    large, small = (other, one) if _rank(other) > _rank(one) else (one, other)
    left = max(large.unexplained, small.unexplained)
    return large if left == large.unexplained else replace(large, unexplained=left)


def _rank(found: Deviation) -> tuple[float, float, int]:
    return found.size, found.max_abs, found.bits


def difference(
    name: str,
    call: int,
    reference: Array,
    other: Array,
    unit: float | None = None,
    exact: Array | None = None,
    moved: Array | None = None,
) -> Deviation:
    """Distance of two arrays that should be equal; infinite for different shapes.

    Elements that are masked in one of them are not compared. Integers of 32 bits and more are ids
    and numbers of things, which no rounding changes: where two differ the relative distance is
    infinite. Smaller ones are quantized values. Of complex numbers the parts are compared.

    Args:
        name, call: for the result.
        reference, other: the arrays.
        unit: of :class:`RoundingNoise`; by default that of float64, if the reference is of that.
            No element is held against its own size where it is not known.
        exact: the reference in float64.
        moved: how far each element moves in float64 when arguments are rounded otherwise.
    """
    if reference.shape != other.shape:
        return Deviation(name, call, np.inf, np.inf, np.inf, 0.0, np.inf, max(reference.size, 1))
    at: Array | None = None
    if any(np.ma.isMaskedArray(each) for each in (reference, other)):
        shown = ~(np.ma.getmaskarray(reference) | np.ma.getmaskarray(other))
        at, exact, moved = np.flatnonzero(shown), _kept(exact, shown), _kept(moved, shown)
        reference, other = np.asarray(reference)[shown], np.asarray(other)[shown]
    if reference.size == 0:
        return NONE
    if _same_bits(reference, other):  # most arrays, and nearly all elements of long caches
        return Deviation(name, call, 0.0, 0.0, 0.0, 1.0)
    a, b = _numbers(reference, other)
    pair = _Differing.of(a, b)
    if unit is None and reference.dtype.name in ("float64", "complex128"):
        unit = WIDE_UNIT
    counts = reference.dtype.kind in "iu" and reference.dtype.itemsize >= 4
    relative, largest = pair.relative(counts=counts)
    element, smallest, own = 0.0, 0, 0.0
    if unit is not None and reference.dtype.kind not in "iub" and pair.scale:
        right = _flat_like(reference, exact)
        element, smallest = pair.by_element(unit, right, _flat_like(reference, moved))
        own = 0.0 if right is None else pair.error(right)
    amplified = unit is not None and relative <= own and own > PATH_ROUNDINGS * unit
    places = _places((largest, smallest, pair.first), a.size // reference.size, at)
    return Deviation(
        name,
        call,
        float(pair.gap.max(initial=0.0)),
        relative,
        _ulp(pair.a, pair.b, pair.gap),
        _cosine(a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)),
        element,
        pair.bits,
        places,
        amplified,
        element if amplified else max(relative, element),
    )


def _kept(array: Array | None, shown: Array) -> Array | None:
    return None if array is None else np.asarray(array)[shown]


def _flat_like(reference: Array, array: Array | None) -> Array | None:
    """The numbers of an array of the reference's shape; ``None`` for another one."""
    return _numbers(array)[0] if array is not None and array.shape == reference.shape else None


def _places(found: tuple[int, int, int], per: int, at: Array | None) -> tuple[int, int, int]:
    """Places of elements, ``per`` numbers each, in the array before elements were masked."""
    first, second, third = (int(place) // per for place in found)
    if at is None:
        return first, second, third
    return int(at[first]), int(at[second]), int(at[third])


def _same_bits(a: Array, b: Array) -> bool:
    """True for arrays of one type with the same bits; false for NaN."""
    if a.dtype != b.dtype:
        return False
    if a.dtype.kind in "iub":
        return bool((a == b).all())
    if a.dtype.kind == "c":
        if not np.array_equal(a, b):
            return False
        pairs = (np.real(a), np.real(b)), (np.imag(a), np.imag(b))
        return all(bool((np.signbit(x) == np.signbit(y)).all()) for x, y in pairs)
    code = np.dtype(f"u{a.dtype.itemsize}")
    return bool((a.view(code) == b.view(code)).all() and (a == a).all())


def _numbers(*arrays: Array) -> list[Array]:
    """Flat real numbers that several arrays hold; two for each element if one is complex."""
    if all(array.dtype.kind in "iub" for array in arrays):
        return [array.ravel() for array in arrays]
    if any(array.dtype.kind == "c" for array in arrays):
        # Two numbers of 4 bits are carried as a complex number where a byte has both.
        arrays = tuple([array.astype(np.complex128) for array in arrays])
    return [real_parts(array).astype(np.float64, copy=False).ravel() for array in arrays]


@dataclass(slots=True)
class _Differing:
    """The numbers of two flat arrays that differ.

    Attributes:
        whole: the reference.
        scale: the largest finite one, those of masked scores left out.
        where: flat indices of the numbers whose values differ.
        a, b: those numbers.
        gap: their differences; infinite where one is NaN.
        bits: how many numbers differ in value or in the sign of zero.
        first: the first of them.
    """

    whole: Array
    scale: float
    where: Array
    a: Array
    b: Array
    gap: Array
    bits: int
    first: int

    @classmethod
    def of(cls, a: Array, b: Array) -> _Differing:
        """Compare two arrays of one size."""
        with np.errstate(invalid="ignore", over="ignore"):
            # Few of many: whole arrays are passed over once.
            found = np.flatnonzero(a != b)
            x, y = a[found], b[found]
            alike = (x != x) & (y != y)
            if alike.any():
                found, x, y = found[~alike], x[~alike], y[~alike]
            gap = _gap(x, y)
            scale = max(float(a.max(initial=0)), -float(a.min(initial=0)))
        if not scale < _LEAST_MASK:
            sizes = np.abs(a.astype(np.float64))
            known = np.isfinite(sizes) & ~np.isin(a, _MASKS)
            scale = float(sizes[known].max(initial=0.0))
        signs = _zeros_of_other_signs(a, b) if _signed(a) else found[:0]
        first = min([int(places[0]) for places in (found, signs) if places.size], default=0)
        wide = x.astype(np.float64), y.astype(np.float64)
        return cls(a, scale, found, *wide, gap, found.size + signs.size, first)

    @property
    def sizes(self) -> Array:
        """Absolute values of the whole reference."""
        return np.abs(self.whole.astype(np.float64, copy=False))

    def relative(self, *, counts: bool) -> tuple[float, int]:
        """The largest difference over the largest value, and its place.

        Args:
            counts: whether any difference is infinite.
        """
        if not self.gap.size:
            return 0.0, self.first
        own = self._own()
        whole = np.maximum(self.scale, np.where(np.isfinite(own), own, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.where(whole > 0, self.gap / whole, np.inf)
        place = int(np.argmax(far))
        return float("inf") if counts else float(far[place]), int(self.where[place])

    def by_element(
        self, unit: float, exact: Array | None, moved: Array | None = None
    ) -> tuple[float, int]:
        """The largest difference over the element's own size, and its place.

        Args:
            unit: of the rounding.
            exact: the whole reference in float64.
            moved: how far all of its elements move in float64 when arguments are rounded otherwise:
                16 times this is rounding. The neighbours of an element do not show that its terms
                cancel.
        """
        own = self._own()
        large = (own >= self.scale / 4) & np.isfinite(self.gap)
        noise = max(
            self.scale * unit * (_UNKNOWN if exact is None else _TIMES),
            _TIMES * float(self.gap[large].max(initial=0.0)),
        )
        over = np.full(self.gap.shape, noise)
        if exact is not None:
            sizes = self.sizes
            error = np.abs(np.where(np.isfinite(sizes), _error(sizes, exact), 0.0))
            over = np.maximum(over, _TIMES * float(np.nan_to_num(error, nan=0.0).max(initial=0.0)))
            if unit <= _SINGLE:
                over = np.minimum(over, _of_size(sizes, own, error, unit))
        if moved is not None:
            over = np.maximum(over, _TIMES * np.nan_to_num(moved[self.where], posinf=0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.where(self.gap > over, self.gap / own, 0.0)
        far = np.nan_to_num(far, nan=0.0, posinf=np.inf)
        place = int(np.argmax(far)) if far.size else 0
        return (float(far[place]), int(self.where[place])) if far.size else (0.0, 0)

    def error(self, exact: Array) -> float:
        """The largest error of the reference, relative to its largest value.

        Args:
            exact: the whole reference in float64.
        """
        sizes = self.sizes
        known = np.isfinite(sizes) & np.isfinite(exact) & (sizes <= self.scale)
        error = np.abs(np.where(known, _error(sizes, exact), 0.0))
        return float(error.max(initial=0.0)) / self.scale

    def _own(self) -> Array:
        """Absolute values of the reference where the numbers differ."""
        return np.abs(self.a)


def _zeros_of_other_signs(a: Array, b: Array) -> Array:
    """Flat indices of zeros of both arrays that differ in their signs."""
    zeros = np.flatnonzero(a == 0)
    x, y = a[zeros], b[zeros]
    return zeros[(y == 0) & (np.signbit(x) != np.signbit(y))]


def _error(sizes: Array, exact: Array) -> Array:
    """Errors of the reference, by size: signs do not matter to them."""
    with np.errstate(invalid="ignore"):
        return sizes - np.abs(exact)


def _of_size(sizes: Array, own: Array, error: Array, unit: float) -> Array:
    """64 times the largest error of elements of about the same size, if these are many.

    Args:
        sizes: of the whole reference.
        own: of the elements.
        error: of the whole reference.
        unit: of the rounding.
    """
    octaves = _octaves(sizes)
    found = np.full(own.shape, np.inf)
    for octave in np.unique(_octaves(own)):
        group = octaves == octave
        if not np.isfinite(octave) or int(group.sum()) < _MANY:
            continue
        size = float(sizes[group].max())
        rounding = float(error[group].max()) + size * unit + _SMALLEST
        found[_octaves(own) == octave] = _CLEAN * rounding
    return found


# Multiples of a rounding that count as rounding: of a known one; of that of float64, which grows
# in a program of some thousand ops; and of elements that are known to be exact.
_TIMES, _UNKNOWN, _CLEAN = 16.0, 2.0**13, 64.0
# As many elements are not exact by chance.
_MANY = 8
# The unit and the smallest number of f32.
_SINGLE, _SMALLEST = 2.0**-24, 2.0**-149


def _octaves(sizes: Array) -> Array:
    """Sizes by powers of 16; infinite for zeros and what is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.floor(np.log2(sizes) / 4)
    return np.where(np.isfinite(found), found, np.inf)


def _signed(a: Array) -> bool:
    return a.dtype.kind == "f"


def _gap(x: Array, y: Array) -> Array:
    """Distances in float64; infinite where one is NaN. Those of integers are exact before that."""
    if x.dtype.kind in "iu" and x.dtype == y.dtype:
        above, below = np.maximum(x, y), np.minimum(x, y)
        # The difference of two numbers of 64 bits fits 64 bits without sign.
        return (above.astype(np.uint64) - below.astype(np.uint64)).astype(np.float64)
    gap = np.abs(x.astype(np.float64) - y.astype(np.float64))
    return np.where(np.isnan(gap), np.inf, gap)


def _ulp(a: Array, b: Array, gap: Array) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        unit = np.spacing(np.maximum(np.abs(a), np.abs(b)).astype(np.float32)).astype(np.float64)
        steps = gap / unit
    return float(np.nan_to_num(steps, nan=np.inf).max(initial=0.0))


def _cosine(a: Array, b: Array) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        if not np.isfinite(size):
            return float("nan")
        return float(a @ b) / size if size else 1.0
