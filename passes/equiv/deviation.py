"""Distance of two sets of outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.eval import Array

# Largest relative difference in float64 of programs that mean the same.
MEANING_BUDGET = 1e-9


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
    """

    name: str
    call: int
    max_abs: float
    relative: float
    ulp: float
    cosine: float


NONE = Deviation("", 0, 0.0, 0.0, 0.0, 1.0)


def compare(reference: Sequence[dict[str, Array]], other: Sequence[dict[str, Array]]) -> Deviation:
    """The worst difference over all calls, outputs and states."""
    worst = NONE
    for call, (left, right) in enumerate(zip(reference, other, strict=True)):
        for name, array in left.items():
            found = difference(name, call, array, right[name])
            worst = worse(worst, found)
    return worst


def first_beyond(
    reference: Sequence[dict[str, Array]], other: Sequence[dict[str, Array]], limit: float
) -> Deviation | None:
    """The first call and output whose relative difference exceeds ``limit``."""
    for call, (left, right) in enumerate(zip(reference, other, strict=True)):
        for name, array in left.items():
            found = difference(name, call, array, right[name])
            if found.relative > limit:
                return found
    return None


def worse(one: Deviation, other: Deviation) -> Deviation:
    """The larger one of two differences."""
    return other if other.relative > one.relative or other.max_abs == np.inf else one


def difference(name: str, call: int, reference: Array, other: Array) -> Deviation:
    """Distance of two arrays that should be equal; infinite for different shapes.

    Elements that are masked in one of them are not compared. Integers of 32 bits and more are ids
    and numbers of things, which no rounding changes: where two differ the relative distance is
    infinite. Smaller ones are quantized values.
    """
    if reference.shape != other.shape:
        return Deviation(name, call, np.inf, np.inf, np.inf, 0.0)
    if np.ma.isMaskedArray(reference) or np.ma.isMaskedArray(other):
        shown = ~(np.ma.getmaskarray(reference) | np.ma.getmaskarray(other))
        reference, other = np.asarray(reference)[shown], np.asarray(other)[shown]
    if reference.size == 0:
        return NONE
    if np.array_equal(reference, other):
        # Most arrays, and nearly all elements of long caches.
        return Deviation(name, call, 0.0, 0.0, 0.0, 1.0)
    if "c" in (reference.dtype.kind, other.dtype.kind):
        # Real and imaginary parts, which are two numbers of 4 bits where a byte has both.
        reference, other = [np.stack([np.real(x), np.imag(x)]) for x in (reference, other)]
    a, b = reference.astype(np.float64).ravel(), other.astype(np.float64).ravel()
    differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    gap = np.abs(a[differ] - b[differ])
    gap = np.where(np.isnan(gap), np.inf, gap)
    largest = float(gap.max(initial=0.0))
    finite = a[np.isfinite(a)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    exact = reference.dtype.kind in "iu" and reference.dtype.itemsize >= 4
    relative = 0.0 if largest == 0 else largest / scale if scale and not exact else np.inf
    return Deviation(name, call, largest, relative, _ulp(a[differ], b[differ], gap), _cosine(a, b))


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
