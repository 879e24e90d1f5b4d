"""Bucket sizes from the options of transformers-neuronx and NxD Inference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from graphgen.config.bucket_ladder import powers
from graphgen.errors import GraphgenError

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


# The symbols that the programs of a language model share, and the options that give their sizes.
SERVING = MappingProxyType({"B": "batch", "S": "context", "C": "tokens", "R": "rows", "M": "slots"})


def named_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Sizes by symbol of ``("N=8",)`` (GG0302 for other text, sizes below 1 and repetitions)."""
    sizes: dict[str, int] = {}
    for text in texts:
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*", text)
        if not match or not int(match[2]):
            raise GraphgenError(
                "GG0302", f"dims=[{text}] is not a symbol and a size", help="write dims=[N=8,T=4]"
            )
        if match[1] in sizes:
            raise GraphgenError("GG0302", f"dims=[{','.join(texts)}]: {match[1]} is given twice")
        sizes[match[1]] = int(match[2])
    return sizes
