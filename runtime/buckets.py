"""Buckets: the sizes programs are compiled for, and which one a size belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError

SMALLEST = 128


def ladder(largest: int, smallest: int = SMALLEST) -> tuple[int, ...]:
    """Powers of two from ``smallest``, and ``largest`` itself: ladder(1000) = 128 256 512 1000.

    Raises:
        GraphgenError: GG0705 for a size below 1.
    """
    if largest < 1:
        raise GraphgenError("GG0705", f"the largest bucket must be at least 1, not {largest}")
    sizes: list[int] = []
    size = smallest
    while size < largest:
        sizes.append(size)
        size *= 2
    return (*sizes, largest)


def up_to(size: int, limit: int) -> int:
    """A largest bucket for ``size``: the next power of two from 128, at most ``limit``."""
    bucket = SMALLEST
    while bucket < size:
        bucket *= 2
    return min(bucket, max(limit, 1))


def choose(buckets: Sequence[int], size: int, what: str) -> int:
    """The smallest bucket with ``size <= bucket``.

    Raises:
        GraphgenError: GG0701 when even the largest is too small; nothing is ever cut off.
    """
    for bucket in sorted(buckets):
        if size <= bucket:
            return bucket
    raise GraphgenError(
        "GG0701",
        f"{what} of {size} tokens is longer than the largest bucket, {max(buckets)}",
        help=f"compile for longer sequences, e.g. --max-len {up_to(size, 1 << 30)}",
    )
