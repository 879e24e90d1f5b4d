"""Bucket sizes from the options of transformers-neuronx and NxD Inference."""

from __future__ import annotations

from graphgen.bucket_ladder import powers

# A ladder as transformers-neuronx takes it: its largest size, or all of its sizes.
Sizes = int | tuple[int, ...]


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
