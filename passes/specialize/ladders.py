"""Bucket sizes to compile for: ladders up to a largest size, as the AWS libraries name them."""

from __future__ import annotations

from graphgen.errors import GraphgenError

# The smallest bucket of an automatic ladder; a smaller program saves nothing that can be measured.
SMALLEST = 128

# What transformers-neuronx takes for a ladder: its largest size, or all of its sizes.
Sizes = int | tuple[int, ...]


def powers(largest: int, smallest: int = SMALLEST) -> tuple[int, ...]:
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


def token_sizes(n_positions: Sizes) -> tuple[int, ...]:
    """Decode buckets from ``n_positions``: a list as it is, in order; a number as its ladder."""
    return powers(n_positions) if isinstance(n_positions, int) else _in_order(n_positions)


def context_sizes(estimate: Sizes | None, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Prefill buckets from ``context_length_estimate``.

    Args:
        estimate: a list as it is, in order; a number as the one bucket; 0 for none, where prompts
            go through the decode programs; ``None`` for half of each decode bucket.
        tokens: the decode buckets.
    """
    if estimate is None:
        return _in_order(tuple(max(1, size // 2) for size in tokens))
    if isinstance(estimate, int):
        return (estimate,) if estimate > 0 else ()
    return _in_order(estimate)


def _in_order(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(sizes)))
