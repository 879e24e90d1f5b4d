"""The ladder of at most k buckets that takes the least time for a histogram, by exact search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf


@dataclass(frozen=True, slots=True)
class Ladder:
    """Buckets, and the expected time of a call with them.

    Attributes:
        buckets: in order; the last one takes the longest call.
        seconds: of all calls together, each in the smallest bucket that takes it.
    """

    buckets: tuple[int, ...]
    seconds: float


def best_ladders(
    sizes: Sequence[int], calls: Sequence[float], seconds: Sequence[float], most: int
) -> list[Ladder]:
    """The best ladder of at most 1, 2, ... ``most`` buckets, all of which end with the last size.

    Dynamic programming over the largest bucket of a ladder of exactly k: O(most * sizes^2).

    Args:
        sizes: candidate buckets, increasing.
        calls: item i is the number of calls (any weight of at least 0) that need more than
            ``sizes[i - 1]`` and at most ``sizes[i]``.
        seconds: item i is the time of a call in bucket ``sizes[i]``, any number of at least 0.
        most: buckets of a ladder, at least 1.

    Returns:
        ``min(most, len(sizes))`` ladders; one that cannot be improved by a further bucket is
        repeated.
    """
    count = len(sizes)
    below = [0.0, *accumulate(calls)]
    # Item j: the least time of the calls up to sizes[j] with a ladder that ends there, and the
    # index of the bucket before the last.
    costs = [(below[j + 1] * seconds[j], -1) for j in range(count)]
    table = [costs]
    for _ in range(1, min(most, count)):
        costs = [_extended(costs, j, below, seconds[j]) for j in range(count)]
        table.append(costs)
    found: list[Ladder] = []
    for length, row in enumerate(table, 1):
        made = Ladder(tuple([sizes[i] for i in _path(table, length)]), row[-1][0])
        better = not found or made.seconds < found[-1].seconds
        found.append(made if better else found[-1])
    return found


def _extended(
    shorter: Sequence[tuple[float, int]], last: int, below: Sequence[float], seconds: float
) -> tuple[float, int]:
    """The least time with a further bucket after ladders that end before ``last``."""
    options = [(shorter[i][0] + (below[last + 1] - below[i + 1]) * seconds, i) for i in range(last)]
    return min(options, default=(inf, -1))


def _path(table: Sequence[Sequence[tuple[float, int]]], length: int) -> list[int]:
    """Indices of the buckets of the best ladder of ``length`` that ends with the last size."""
    place, path = len(table[0]) - 1, [len(table[0]) - 1]
    for row in reversed(table[1:length]):
        place = row[place][1]
        path.append(place)
    return path[::-1]


def ladder_seconds(
    buckets: Sequence[int], sizes: Sequence[int], calls: Sequence[float], seconds: Sequence[float]
) -> float:
    """The time of all calls with the given buckets, which are some of ``sizes``.

    Args:
        buckets: increasing, the last at least as large as any call.
        sizes, calls, seconds: as for :func:`best_ladders`.
    """
    time = dict(zip(sizes, seconds, strict=True))
    return sum(
        time[upper] * sum(n for size, n in zip(sizes, calls, strict=True) if lower < size <= upper)
        for lower, upper in pairwise([0, *buckets])
    )


def binned(counts: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """Counts by length as calls by candidate bucket.

    Args:
        counts: item n is the number of calls of length n.
        sizes: increasing, the last at least as large as any length.
    """
    return [sum(counts[lower + 1 : upper + 1]) for lower, upper in pairwise([0, *sizes])]
