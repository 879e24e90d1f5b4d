"""Sizes of buckets: ladders of powers of two, or lists given by a user."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError

# The smallest bucket of an automatic ladder; on a device smaller programs take as long.
SMALLEST_BUCKET = 128
# The smallest bucket of prompts on a CPU, where padding takes as long as tokens.
SHORTEST_PROMPTS = 16


def bucket_ladder(
    phase: str, given: Sequence[int], largest: int, *, bucketing: bool
) -> tuple[int, ...]:
    """The buckets of a phase in order: those given, else a ladder or the one of ``largest``.

    Raises:
        GraphgenError: GG0705 for buckets without bucketing, twice, below 1 or above ``largest``.
    """
    if not given:
        sizes = powers(largest)
        return sizes if bucketing else sizes[-1:]
    sizes, what = tuple(sorted(given)), f"--{phase}-buckets {','.join(map(str, given))}"
    if not bucketing:
        raise GraphgenError(
            "GG0705", f"{what} and --no-bucketing exclude each other", help="give one of them"
        )
    if sizes[0] < 1 or len(set(sizes)) < len(sizes):
        raise GraphgenError(
            "GG0705", f"{what}: a bucket is at least 1 token", help="give each size once"
        )
    if sizes[-1] > largest:
        limit = "--max-context-length" if phase == "context-encoding" else "--seq-len"
        raise GraphgenError(
            "GG0705",
            f"{what}: a bucket of {sizes[-1]} tokens is longer than {limit} {largest}",
            help=f"leave it out, or give {limit} {sizes[-1]}",
        )
    return sizes


def chunk_sizes(given: Sequence[int], max_len: int) -> tuple[int, ...]:
    """The chunk sizes in order (GG0705 for one that is as long as a sequence, or given twice)."""
    sizes = tuple(sorted(given))
    if sizes and (sizes[-1] >= max_len or sizes[0] < 1 or len(set(sizes)) < len(sizes)):
        raise GraphgenError(
            "GG0705",
            f"--chunked-prefill-size {','.join(map(str, given))}: a chunk is shorter than "
            f"sequences of up to {max_len} tokens, and at least 1 token",
            help="give each size once, for example 128",
        )
    return sizes


def powers(largest: int, smallest: int = SMALLEST_BUCKET) -> tuple[int, ...]:
    """Powers of two from ``smallest``, and ``largest`` itself: powers(1000) = 128 256 512 1000.

    The ladder is complete: no power of two below ``largest`` is left out, so that no size is padded
    to more than twice itself (NxD Inference leaves out 8192 on the way to 10240).

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


def short_prompts(longest: int = 0) -> tuple[int, ...]:
    """Powers of two below ``SMALLEST_BUCKET``, for prompts on a CPU.

    Args:
        longest: tokens of a prompt, whose bucket alone is given; 0 for all of them.
    """
    sizes = powers(SMALLEST_BUCKET, SHORTEST_PROMPTS)[:-1]
    return tuple([size for size in sizes if size >= longest][:1]) if longest else sizes
