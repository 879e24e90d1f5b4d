"""Frequencies of YaRN (arXiv 2309.00071): slow dimensions are stretched, fast ones are kept."""

from __future__ import annotations

import math


def yarn_frequencies(
    theta: float,
    dims: int,
    factor: float,
    original_positions: int,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> list[float]:
    """``theta ** (-2i / dims)`` for i < dims / 2, stretched as transformers' ``yarn`` does.

    Dimensions that turn more than ``beta_fast`` times over the original context are kept, those
    that turn less than ``beta_slow`` times are divided by ``factor``, and those between are blended
    linearly by their index.

    Args:
        theta: the base.
        dims: the rotated elements of a head.
        factor: the stretch of the context.
        original_positions: the context length before it.
        beta_fast, beta_slow: turns at both ends of the blend.
        truncate: whether its ends are rounded to whole dimensions.
    """
    low, high = (
        dims * math.log(original_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (beta_fast, beta_slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        # A blend over no dimension is a step.
        high += 0.001
    found: list[float] = []
    for index in range(dims // 2):
        plain = theta ** (-2.0 * index / dims)
        stretched = min(max((index - low) / (high - low), 0.0), 1.0)
        found.append(stretched * plain / factor + (1 - stretched) * plain)
    return found


def yarn_attention_factor(
    factor: float, mscale: float | None = None, mscale_all_dim: float | None = None
) -> float:
    """The number that cosine and sine are multiplied by: ``0.1 * log(factor) + 1`` by default."""
    if mscale and mscale_all_dim:
        return yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all_dim)
    return yarn_scale(factor, 1.0)


def yarn_scale(factor: float, mscale: float) -> float:
    """``0.1 * mscale * log(factor) + 1`` of a context stretched by ``factor``, else 1."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
