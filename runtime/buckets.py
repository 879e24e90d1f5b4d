"""Bucket sizes that programs are compiled for, and the choice of one for a size."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.compile_config import SMALLEST_BUCKET
from graphgen.errors import GraphgenError


def bucket_limit(size: int, limit: int) -> int:
    """The largest bucket for ``size``: the next power of two from 128, at most ``limit``."""
    bucket = SMALLEST_BUCKET
    while bucket < size:
        bucket *= 2
    return min(bucket, max(limit, 1))


def choose_bucket(buckets: Sequence[int], size: int, what: str) -> int:
    """The smallest bucket with ``size <= bucket``.

    Raises:
        GraphgenError: GG0701 if the largest bucket is too small; inputs are never truncated.
    """
    for bucket in sorted(buckets):
        if size <= bucket:
            return bucket
    raise GraphgenError(
        "GG0701",
        f"{what} of {size} tokens is longer than the largest bucket, {max(buckets)}",
        help=f"compile for longer sequences, e.g. --max-len {bucket_limit(size, 1 << 30)}",
    )
